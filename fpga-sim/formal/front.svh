// Inside front.sv, proved by induction: a read waits for at most one write to be taken, and a write
// for at most one read, whoever offers as he likes and whatever the device takes.
// SPDX-License-Identifier: Apache-2.0
  logic started = 0, read_held = 0, write_held = 0, data_held = 0;
  logic [IDW+51:0] read_was, write_was;
  logic [512:0] data_was;
  always_ff @(posedge clk) begin
    started    <= 1;
    read_held  <= !rst && ar_valid && !ar_ready;
    write_held <= !rst && aw_valid && !aw_ready;
    data_held  <= !rst && w_valid && !w_ready;
    read_was   <= {ar_id, ar_addr};
    write_was  <= {aw_id, aw_addr};
    data_was   <= {w_poison, w_data};
  end
  always_comb begin
    if (!started) assume (rst);
    assume (bug_starve == `BUG && !bug_refuse);
    // what is offered stays until it is taken (stable.sv)
    assume (!read_held || (ar_valid && {ar_id, ar_addr} == read_was));
    assume (!write_held || (aw_valid && {aw_id, aw_addr} == write_was));
    assume (!data_held || (w_valid && {w_poison, w_data} == data_was));
  end
  always_ff @(posedge clk)
    if (started && !rst) begin
      assert (read_waits == 0 || (last_write && read_held));
      assert (write_waits == 0 || (!last_write && write_held && data_held));
      assert (read_waits < 2 && write_waits < 2);
    end

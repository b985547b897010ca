// Inside front.sv, proved by induction: a read waits for at most one write to be taken, and a write
// for at most one read, whoever offers as he likes and whatever the device takes.
// SPDX-License-Identifier: Apache-2.0
  logic started = 0, read_held = 0, write_held = 0, data_held = 0;
  always_ff @(posedge clk) begin
    started    <= 1;
    read_held  <= !rst && ar_valid && !ar_ready;
    write_held <= !rst && aw_valid && !aw_ready;
    data_held  <= !rst && w_valid && !w_ready;
  end
  always_comb begin
    if (!started) assume (rst);
    assume (bug_starve == `BUG && !bug_refuse);
    // what is offered stays until it is taken (stable.sv)
    assume (!read_held || ar_valid);
    assume (!write_held || aw_valid);
    assume (!data_held || w_valid);
  end
  always_ff @(posedge clk)
    if (started && !rst) begin
      assert (read_waits == 0 || (last_write && read_held));
      assert (write_waits == 0 || (!last_write && write_held && data_held));
      assert (read_waits < 2 && write_waits < 2);
    end

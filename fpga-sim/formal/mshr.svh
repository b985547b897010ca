// Inside mshr.sv, proved by induction: as many registers are busy as were taken and not given back
// (none lost, none doubled), no line has two, and a look-up tells of each line that one evicts dirty.
// SPDX-License-Identifier: Apache-2.0
  logic started = 0;
  logic [MW:0] count, busy_now;
  logic evicted;
  always_ff @(posedge clk) begin
    started <= 1;
    if (rst) count <= '0;
    else count <= count + {{MW{1'b0}}, take} - {{MW{1'b0}}, release_one};
  end
  // who asks: a miss takes one for a line that has none; what is given back was taken
  always_comb begin
    if (!started) assume (rst);
    assume (bug_leaves == `BUG);
    assume (!take || (look_free && !look_has && !rst));
    assume (!release_one || (busy[release_mshr] && !rst));
    busy_now = '0;
    evicted = 0;
    for (int i = 0; i < MSHRS; i++) begin
      busy_now = busy_now + {{MW{1'b0}}, busy[i]};
      if (busy[i] && dirty[i] && victim[i] == look_line) evicted = 1;
    end
  end
  always_ff @(posedge clk)
    if (started && !rst) begin
      assert (busy_now == count);
      assert (used == count);
      assert (look_leaves == evicted);
      for (int i = 0; i < MSHRS; i++)
        for (int k = 0; k < i; k++) assert (!(busy[i] && busy[k] && line[i] == line[k]));
    end

// Inside clean.sv, proved by induction: as many registers are busy as began and have not ended, no
// way has two, a look-up tells of each that is held; and none may begin while reads are under way
// before it has waited.
// SPDX-License-Identifier: Apache-2.0
  logic started = 0, listed;
  logic [KW:0] count, busy_now;
  always_ff @(posedge clk) begin
    started <= 1;
    if (rst) count <= '0;
    else count <= count + {{KW{1'b0}}, begin_one} - {{KW{1'b0}}, end_one};
  end
  // decide.sv: it begins where it may, a way that nobody has; what ends is under way
  always_comb begin
    if (!started) assume (rst);
    assume (bug_yield == `BUG && !bug_starve);
    assume (!begin_one || (may && !rst && !end_one && !held[begin_way] &&
                           begin_line[SETS_LOG-1:0] == look_set));
    assume (!end_one || (busy[end_which] && end_which < CLEANS && !rst));
    busy_now = '0;
    listed = 1;
    for (int i = 0; i < CLEANS; i++) begin
      busy_now = busy_now + {{KW{1'b0}}, busy[i]};
      if (busy[i] && line[i][SETS_LOG-1:0] == look_set && !held[way[i]]) listed = 0;
    end
  end
  always_ff @(posedge clk)
    if (started && !rst) begin
      assert (busy_now == count);
      assert (listed);
      assert (!may || idle || waited >= clean_wait);
      for (int i = 0; i < CLEANS; i++)
        for (int k = 0; k < i; k++)
          assert (!(busy[i] && busy[k] && way[i] == way[k] &&
                    line[i][SETS_LOG-1:0] == line[k][SETS_LOG-1:0]));
    end

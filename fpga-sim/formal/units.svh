// Inside units.sv, proved by induction: no line is held by two units, and a line that a write takes is
// held no longer.
// SPDX-License-Identifier: Apache-2.0
  logic started = 0, half = 0, dropped = 0;  // half: a unit's first line was looked up
  logic [LW-1:0] before;
  always_ff @(posedge clk) begin
    started <= 1;
    half    <= !rst && (probe ? first : half);
    dropped <= !rst && drop;
    before  <= look_line;
  end
  // windows look up both lines of a unit, one after the other; ends and frees are of what there is
  always_comb begin
    if (!started) assume (rst);
    assume (bug_both == `BUG && !bug_here);
    assume (!(probe && first) || (can_take && !look_line[0]));
    assume (first == !half);
    assume (!(probe && half) || look_line == {number[current], 1'b1});
    assume (!(probe && hold) || !has);  // decide.sv sees to it
    assume (!drop || has);
    assume (!(came || broken || free) || (busy[which] && !(half && which == current)));
    assume ({2'd0, probe} + {2'd0, drop} + {2'd0, came} + {2'd0, broken} + {2'd0, free} <= 1);
  end
  always_ff @(posedge clk)
    if (started && !rst) begin
      assert (!(dropped && look_line == before && has));
      if (half) assert (busy[current]);
      for (int i = 0; i < UNITS; i++) begin
        for (int k = 0; k < i; k++)
          assert (!(busy[i] && busy[k] && number[i] == number[k] && (held[i] & held[k]) != 0));
      end
    end

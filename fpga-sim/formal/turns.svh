// Inside turns.sv, proved by induction: while a window may begin, each other of its class begins one
// unit at most before it; and none of a higher class does.
// SPDX-License-Identifier: Apache-2.0
  (* anyconst *) logic [CW-1:0] one;
  logic started = 0, waits = 0;
  logic [1:0] class_then;
  logic [CW:0] passed = '0;  // units that others of its class began while it waited
  wire [1:0] its_class  = of_class[{one, 1'b0} +: 2];
  wire [CW-1:0] before  = one - last[its_class] - 1'b1;  // windows whose turn is before its own
  always_ff @(posedge clk) begin
    started    <= 1;
    waits      <= !rst && may[one] && !(take && which == one);
    class_then <= its_class;
    if (rst || !may[one] || (take && which == one)) passed <= '0;
    else if (take && least == its_class) passed <= passed + 1'b1;
  end
  always_comb begin
    if (!started) assume (rst);
    assume (bug_turns == `BUG);
    assume (!take || |may);
    // it waits until its turn has come, and its class does not change meanwhile
    assume (!waits || (may[one] && its_class == class_then));
  end
  always_ff @(posedge clk)
    if (started && !rst) begin
      if (waits) assert ({1'b0, passed} + {2'd0, before} < WINDOWS);
      else assert (passed == 0);
      if (take && may[one]) assert (least <= its_class);
      if (take) assert (may[which] && of_class[{which, 1'b0} +: 2] == least);
    end

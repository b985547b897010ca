// Inside window.sv, proved by induction: the watermark never goes back before the next prefetch, is
// never ahead of what was begun, nor passes a unit that has not come; no more units than the limit.
// SPDX-License-Identifier: Apache-2.0
  logic started = 0, same_now = 0;
  logic [UNITS-1:0] flying;  // on their way: what ends is one of them
  logic [31:0] mark_then;
  always_ff @(posedge clk) begin
    started   <= 1;
    mark_then <= mark;
    same_now  <= !rst && !begins;
    if (rst) flying <= '0;
    else begin
      if (begin_one) flying[begin_slot] <= 1;
      if (came || broken) flying[end_slot] <= 0;
    end
  end
  always_comb begin
    if (!started) assume (rst);
    assume (bug_mark == `BUG && !bug_limit && !bug_early);
    assume (!begin_one || (may_begin && !rst));
    assume (!free_one || (may_free && !rst && !begin_one));
    assume (!(came && broken));
    assume (!(came || broken) || (flying[end_slot] && !rst));
  end
  always_ff @(posedge clk)
    if (started && !rst) begin
      if (same_now) assert (mark == mark_then || (mark == mark_then + 1 && mark_then != taken));
      assert (mark <= taken);
      assert (freed <= taken);
      assert (room_used <= UNITS);
      if (!open) assert (room_used == 0);
      else begin
        assert (taken <= many);
        assert (most <= UNITS);
        assert (room_used <= {{(31-UW){1'b0}}, most});
      end
      for (int i = 0; i < UNITS; i++) begin
        assert (!(flying[i] && done[i]) && !(flying[i] && bad[i]) && !(done[i] && bad[i]));
        // a slot that no unit is in is in no state, one with a unit in some
        assert ((flying[i] || done[i] || bad[i]) ==
                ({{(32-UW){1'b0}}, UW'(UW'(i) - freed[UW-1:0])} < room_used));
      end
    end

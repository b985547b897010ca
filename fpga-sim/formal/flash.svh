// Inside flash.sv, proved by induction: what came in by a fence comes out as one end, once; no
// answer to an old command ends anything; no queue overruns. It rests on this: a register that is
// inside has its command due, or given, or an end: one of them, and once.
// SPDX-License-Identifier: Apache-2.0
  logic started = 0, waited = 0;
  logic [MANY-1:0] inside_flash, flying;  // fenced and not ended; a command is under way
  logic [IW-1:0] waited_who;
  logic [CIDW-1:0] cid [MANY];
  (* anyconst *) logic [MANY-1:0] dirty;
  wire fence = fence_valid && fence_ready;
  wire ended_one = end_valid && end_ready;
  wire own_cpl = cpl_valid && flying[cpl_who] && cid[cpl_who] == cpl_cid &&
                 !(abort_valid && abort_cid[IW-1:0] == cpl_who);
  always_ff @(posedge clk) begin
    started    <= 1;
    waited     <= !rst && fence_valid && !fence_ready;
    waited_who <= fence_who;
    if (rst) begin
      inside_flash <= '0;
      flying       <= '0;
    end else begin
      if (fence) inside_flash[fence_who] <= 1;
      if (ended_one) inside_flash[end_who] <= 0;
      if (own_cpl) flying[cpl_who] <= 0;
      if (give_abort) cid[abort_cid[IW-1:0]] <= abort_cid;
      if (give) begin
        flying[cmd_cid[IW-1:0]] <= 1;
        cid[cmd_cid[IW-1:0]]    <= cmd_cid;
      end
    end
  end
  always_comb begin
    if (!started) assume (rst);
    if (started) assume (!rst);
    assume (bug_stray == `BUG && !bug_tries && !bug_clean && !bug_late);
    assume (timeout == TW'(2) && tries_most == 4'd2);
    // what is fenced was ended before; a victim stays what it is; a fence stays until it is taken
    assume (!fence_valid || (!inside_flash[fence_who] && !rst));
    assume (dirty[FIRST_CLEAN] && look_dirty == dirty[look_who] && !look_unit);
    assume (look_line == LW'(0) && look_victim == LW'(1) && look_place == PW'(look_who));
    assume (!waited || (fence_valid && fence_who == waited_who));
    assume (!cpl_valid || !rst);
  end
  always_ff @(posedge clk)
    if (started && !rst) begin
      if (ended_one) assert (inside_flash[end_who] && !flying[end_who]);
      if (cmd_valid) assert (inside_flash[cmd_cid[IW-1:0]] && !flying[cmd_cid[IW-1:0]]);
      if (abort_valid) assert (flying[abort_who] && cid[abort_who] != abort_cid);
      assert (stray_up == (cpl_valid && !own_cpl));  // all others are strays
      assert (due_once && ended_once && (!abort_valid || !aborting[abort_who]));
      assert (flying == given && (aborting & ~given) == '0);
      for (int i = 0; i < MANY; i++) begin
        assert ({1'b0, in_due[i]} + {1'b0, given[i]} + {1'b0, in_ended[i]} ==
                {1'b0, inside_flash[i]});
        if (given[i]) assert (cid[i] == {count[i], IW'(i)});
      end
    end

// Checks of flash.sv, for all that can happen within some cycles of a reset: what came in by a
// fence comes out as one end, once; no answer to an old command ends anything; no queue overruns.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module flash_proof (
  input logic clk, rst, fence_valid, cmd_ready, abort_ready, cpl_valid, cpl_error, end_ready,
  input logic [1:0] fence_who, input logic [5:0] cpl_cid, input logic [3:0] dirty
);
  logic fence_ready, cmd_valid, cmd_write, cmd_unit, cpl_ready, end_valid, end_broken;
  logic [1:0] look_who, end_who;
  logic [5:0] cmd_cid;
  logic [1:0] cmd_line, cmd_place;
  logic abort_valid, u0, u1, u2, u3, u4, u5;
  logic [5:0] abort_cid;
  flash #(.MANY(4), .FIRST_CLEAN(3), .TW(3), .IW(2), .LW(2), .PW(2), .CIDW(6)) u (
    .clk, .rst, .bug_stray(`BUG),
    .bug_tries(1'b0), .bug_clean(1'b0), .bug_late(1'b0), .timeout(3'd2), .tries_most(4'd2),
    .fence_valid, .fence_ready, .fence_who,
    .look_who, .look_line(2'd0), .look_victim(2'd1), .look_place(look_who),
    .look_dirty(dirty[look_who]), .look_unit(1'b0), .cmd_valid, .cmd_ready, .cmd_write, .cmd_cid,
    .cmd_line, .cmd_place, .cmd_unit, .abort_valid, .abort_ready, .abort_cid,
    .cpl_valid, .cpl_ready, .cpl_cid, .cpl_error, .end_valid,
    .end_ready, .end_who, .end_broken, .read_up(u0), .write_up(u1), .error_up(u2), .lost_up(u3),
    .stray_up(u4), .timeout_up(u5));
  logic started = 0;
  logic [3:0] inside_flash, steady, flying;  // fenced and not ended; a command is under way
  logic [1:0] waited_who;
  logic waited = 0;
  logic [5:0] cid [4];
  wire fence = fence_valid && fence_ready;
  wire ended = end_valid && end_ready;
  wire real_cpl = cpl_valid && flying[cpl_cid[1:0]] && cid[cpl_cid[1:0]] == cpl_cid &&
                  !(abort_valid && abort_cid[1:0] == cpl_cid[1:0]);
  always_ff @(posedge clk) begin
    started    <= 1;
    steady     <= dirty;
    waited     <= !rst && fence_valid && !fence_ready;
    waited_who <= fence_who;
    if (rst) begin
      inside_flash <= '0;
      flying       <= '0;
    end else begin
      if (fence) inside_flash[fence_who] <= 1;
      if (ended) inside_flash[end_who] <= 0;
      if (real_cpl) flying[cpl_cid[1:0]] <= 0;
      if (abort_valid && abort_ready) cid[abort_cid[1:0]] <= abort_cid;
      if (cmd_valid && cmd_ready) begin
        flying[cmd_cid[1:0]] <= 1;
        cid[cmd_cid[1:0]]    <= cmd_cid;
      end
    end
  end
  always_comb begin
    if (!started) assume (rst);
    if (started) assume (!rst);
    // what is fenced was ended before; a victim stays what it is; a fence stays until it is taken
    assume (!fence_valid || (!inside_flash[fence_who] && !rst));
    assume (dirty[3] && (!started || dirty == steady));
    assume (!waited || (fence_valid && fence_who == waited_who));
    assume (!cpl_valid || !rst);
  end
  always_ff @(posedge clk)
    if (started && !rst) begin
      if (ended) assert (inside_flash[end_who] && !flying[end_who]);
      if (cmd_valid) assert (inside_flash[cmd_cid[1:0]] && !flying[cmd_cid[1:0]]);
      if (abort_valid) assert (flying[abort_cid[1:0]] && cid[abort_cid[1:0]] != abort_cid);
      assert (u4 == (cpl_valid && !real_cpl));  // all others are strays
    end
endmodule
`default_nettype wire

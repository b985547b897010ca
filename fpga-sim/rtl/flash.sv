// The commands of misses and units: one fence in, then a write if the victim is dirty, then a read,
// then one end out. Failed commands are given again. The number of a command (NVMe's CID) holds a
// count beside the miss register or unit, so that an answer to an old command is known as such. A
// command that is not answered in time is withdrawn: by an abort, whose answer is the command's.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module flash #(
  parameter int MANY = 8,       // miss registers, units and cleaning registers
  parameter int FIRST_CLEAN = 8, // the first of the last
  parameter int IW = 3,         // bits of their numbers
  parameter int LW = 19,        // bits of a line's number
  parameter int PW = 14,        // bits of a place in DRAM
  parameter int CIDW = 16,      // bits of a command's number; NVMe's
  parameter int TW = 32         // bits of a time-out, in cycles
) (
  input  logic clk, rst, bug_stray, bug_tries, bug_clean, bug_late,
  input  logic [3:0] tries_most, input logic [TW-1:0] timeout,  // 0: none
  input  logic fence_valid, output logic fence_ready, input logic [IW-1:0] fence_who,
  output logic [IW-1:0] look_who,  // what is known of it:
  input  logic [LW-1:0] look_line, look_victim, input logic [PW-1:0] look_place,
  input  logic look_dirty, look_unit,
  output logic cmd_valid, input logic cmd_ready, output logic cmd_write,
  output logic [CIDW-1:0] cmd_cid, output logic [LW-1:0] cmd_line, output logic [PW-1:0] cmd_place,
  output logic cmd_unit,
  output logic abort_valid, input logic abort_ready, output logic [CIDW-1:0] abort_cid,
  input  logic cpl_valid, output logic cpl_ready, input logic [CIDW-1:0] cpl_cid,
  input  logic cpl_error,
  output logic end_valid, input logic end_ready, output logic [IW-1:0] end_who,
  output logic end_broken,
  output logic read_up, write_up, error_up, lost_up, stray_up, timeout_up
);
  localparam int GW = CIDW - IW;
  localparam int QLOG = IW;
  // of each register: is a command under way; is it a write; how often was it given; its count
  logic [MANY-1:0] given, writing;
  logic [3:0] tries [MANY];
  logic [GW-1:0] count [MANY];
  logic [MANY-1:0] aborting;     // its abort was given
  logic [TW-1:0] since [MANY];   // its command was given
  logic [TW-1:0] now;
  logic [IW-1:0] abort_who, scan; // whose abort is offered; who is looked at

  logic q_valid, q_write, q_in_valid, q_in_ready, q_in_write, end_in_valid, end_in_ready;
  logic [IW-1:0] q_who, q_in_who;
`ifdef PROVE_FLASH
  logic [(1 << QLOG)-1:0] in_due, in_ended;
  logic due_once, ended_once;
`endif

  // completions
  wire [IW-1:0] cpl_who = cpl_cid[IW-1:0];
  wire known  = given[cpl_who] && (cpl_cid[CIDW-1:IW] == count[cpl_who] || bug_stray) &&
                !(abort_valid && abort_who == cpl_who && !bug_late);
  wire real_cpl = cpl_valid && cpl_ready && known;
  wire is_write = writing[cpl_who];
  wire once_more = cpl_error && tries[cpl_who] < tries_most && !bug_tries;
  wire is_clean = cpl_who >= IW'(FIRST_CLEAN);  // a write is all that it wants
  wire goes_on = real_cpl && ((is_write && !is_clean) || once_more);
  assign cpl_ready = 1;

  // what gives a command: a register whose fence is through, or that goes on
  wire fence_write;
  assign q_in_valid  = goes_on || fence_valid;
  assign q_in_who   = goes_on ? cpl_who : fence_who;
  assign q_in_write  = goes_on ? is_write && once_more : fence_write;
  assign fence_ready = !goes_on;
  assign fence_write = !bug_clean;  // a clean victim's write is left out below

  fifo #(.W(IW + 1), .LOG(QLOG)) due (.clk, .rst,
    .in_valid(q_in_valid), .in_ready(q_in_ready), .in_data({q_in_write, q_in_who}),
    .out_valid(q_valid), .out_ready(cmd_ready), .out_data({q_write, q_who})
`ifdef PROVE_FLASH
    , .holds(in_due), .once(due_once)
`endif
    );

  assign look_who = q_who;
  assign cmd_valid = q_valid;
  assign cmd_write = q_write && look_dirty;
  assign cmd_cid   = {count[q_who] + 1'b1, q_who};
  assign cmd_line  = cmd_write ? look_victim : look_line;
  assign cmd_place = look_place;
  assign cmd_unit  = look_unit;
  wire give = cmd_valid && cmd_ready;

  // one register a cycle: is its command late?
  assign abort_cid = {count[abort_who] + 1'b1, abort_who};
  wire give_abort = abort_valid && abort_ready;
  wire expired = given[scan] && !aborting[scan] && timeout != '0 && now - since[scan] > timeout;
  wire fire    = expired && !abort_valid && !(real_cpl && cpl_who == scan);
  always_ff @(posedge clk)
    if (rst) begin
      now         <= '0;
      scan        <= '0;
      abort_valid <= 0;
      aborting    <= '0;
    end else begin
      now <= now + 1'b1;
      if (!expired || fire) scan <= scan == IW'(MANY - 1) ? '0 : scan + 1'b1;
      if (fire) abort_valid <= 1;
      else if (give_abort) abort_valid <= 0;
      if (real_cpl) aborting[cpl_who] <= 0;
      if (give_abort) aborting[abort_who] <= 1;
    end
  always_ff @(posedge clk) begin
    if (fire) abort_who <= scan;
    if (give) since[q_who] <= now;
  end

  fifo #(.W(IW + 1), .LOG(QLOG)) ended (.clk, .rst,
    .in_valid(end_in_valid), .in_ready(end_in_ready), .in_data({cpl_error, cpl_who}),
    .out_valid(end_valid), .out_ready(end_ready), .out_data({end_broken, end_who})
`ifdef PROVE_FLASH
    , .holds(in_ended), .once(ended_once)
`endif
    );
  assign end_in_valid = real_cpl && !goes_on;

  always_ff @(posedge clk)
    if (rst) given <= '0;
    else begin
      if (real_cpl) given[cpl_who] <= 0;
      if (give) given[q_who] <= 1;
    end
  for (genvar g = 0; g < MANY; g++) begin : g_who
    always_ff @(posedge clk)
      if (rst) begin
        tries[g] <= '0;
        count[g] <= '0;
      end else begin
        if (give && q_who == IW'(g)) tries[g] <= tries[g] + 1'b1;
        if ((give && q_who == IW'(g)) || (give_abort && abort_who == IW'(g)))
          count[g] <= count[g] + 1'b1;
        if (real_cpl && cpl_who == IW'(g) && !once_more) tries[g] <= '0;
      end
  end
  always_ff @(posedge clk) if (give) writing[q_who] <= cmd_write;

  assign read_up  = give && !cmd_write;
  assign write_up = give && cmd_write;
  assign error_up = real_cpl && cpl_error;
  assign lost_up  = real_cpl && cpl_error && is_write && !once_more && !is_clean;
  assign stray_up = cpl_valid && cpl_ready && !known;
  assign timeout_up = give_abort;

  stable #(.W(CIDW)) check_abort (.clk, .rst, .valid(abort_valid), .ready(abort_ready),
    .data(abort_cid));
  stable #(.W(2 + CIDW + LW + PW)) check_cmd (.clk, .rst, .valid(cmd_valid), .ready(cmd_ready),
    .data({cmd_write, cmd_unit, cmd_cid, cmd_line, cmd_place}));
  stable #(.W(IW)) check_fence (.clk, .rst, .valid(fence_valid), .ready(fence_ready),
    .data(fence_who));
`ifndef SYNTHESIS
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!q_in_valid || q_in_ready);     // each register is in each queue at most once
      assert (!end_in_valid || end_in_ready);
      assert (!give || !given[q_who]);       // one command of a register at a time
      assert (!abort_valid || given[abort_who]);
    end
`endif
`ifdef PROVE_FLASH
`include "flash.svh"
`endif
endmodule
`default_nettype wire

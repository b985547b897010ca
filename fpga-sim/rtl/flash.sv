// The commands of misses: one fence in, then a write if the victim is dirty, then a read, then one
// end out. Failed commands are given again. The number of a command (NVMe's CID) holds a count
// beside the miss register, so that an answer to an old command is known as such.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module flash #(
  parameter int MSHRS = 8,      // miss registers
  parameter int MW = 3,         // bits of their numbers
  parameter int LW = 19,        // bits of a line's number
  parameter int PW = 14,        // bits of a place in DRAM
  parameter int CIDW = 16       // bits of a command's number; NVMe's
) (
  input  logic clk, rst, bug_stray, bug_tries, bug_clean,
  input  logic [3:0] tries_most,
  input  logic fence_valid, output logic fence_ready, input logic [MW-1:0] fence_mshr,
  output logic [MW-1:0] look_mshr,  // what is known of it:
  input  logic [LW-1:0] look_line, look_victim, input logic [PW-1:0] look_place,
  input  logic look_dirty,
  output logic cmd_valid, input logic cmd_ready, output logic cmd_write,
  output logic [CIDW-1:0] cmd_cid, output logic [LW-1:0] cmd_line, output logic [PW-1:0] cmd_place,
  input  logic cpl_valid, output logic cpl_ready, input logic [CIDW-1:0] cpl_cid,
  input  logic cpl_error,
  output logic end_valid, input logic end_ready, output logic [MW-1:0] end_mshr,
  output logic end_broken,
  output logic read_up, write_up, error_up, lost_up, stray_up
);
  localparam int GW = CIDW - MW;
  localparam int QLOG = MSHRS > 1 ? MW : 1;
  // of each register: is a command under way; is it a write; how often was it given; its count
  logic [MSHRS-1:0] given, writing;
  logic [3:0] tries [MSHRS];
  logic [GW-1:0] count [MSHRS];

  logic q_valid, q_write, q_in_valid, q_in_ready, q_in_write, end_in_valid, end_in_ready;
  logic [MW-1:0] q_mshr, q_in_mshr;

  // completions
  wire [MW-1:0] cpl_mshr = cpl_cid[MW-1:0];
  wire known  = given[cpl_mshr] && (cpl_cid[CIDW-1:MW] == count[cpl_mshr] || bug_stray);
  wire real_cpl = cpl_valid && cpl_ready && known;
  wire is_write = writing[cpl_mshr];
  wire once_more = cpl_error && tries[cpl_mshr] < tries_most && !bug_tries;
  wire goes_on = real_cpl && (is_write || once_more);
  assign cpl_ready = 1;

  // what gives a command: a register whose fence is through, or that goes on
  wire fence_write;
  assign q_in_valid  = goes_on || fence_valid;
  assign q_in_mshr   = goes_on ? cpl_mshr : fence_mshr;
  assign q_in_write  = goes_on ? is_write && once_more : fence_write;
  assign fence_ready = !goes_on;
  assign fence_write = !bug_clean;  // a clean victim's write is left out below

  fifo #(.W(MW + 1), .LOG(QLOG)) due (.clk, .rst,
    .in_valid(q_in_valid), .in_ready(q_in_ready), .in_data({q_in_write, q_in_mshr}),
    .out_valid(q_valid), .out_ready(cmd_ready), .out_data({q_write, q_mshr}));

  assign look_mshr = q_mshr;
  assign cmd_valid = q_valid;
  assign cmd_write = q_write && look_dirty;
  assign cmd_cid   = {count[q_mshr] + 1'b1, q_mshr};
  assign cmd_line  = cmd_write ? look_victim : look_line;
  assign cmd_place = look_place;
  wire give = cmd_valid && cmd_ready;

  fifo #(.W(MW + 1), .LOG(QLOG)) ended (.clk, .rst,
    .in_valid(end_in_valid), .in_ready(end_in_ready), .in_data({cpl_error, cpl_mshr}),
    .out_valid(end_valid), .out_ready(end_ready), .out_data({end_broken, end_mshr}));
  assign end_in_valid = real_cpl && !goes_on;

  always_ff @(posedge clk)
    if (rst) given <= '0;
    else begin
      if (real_cpl) given[cpl_mshr] <= 0;
      if (give) given[q_mshr] <= 1;
    end
  for (genvar g = 0; g < MSHRS; g++) begin : g_mshr
    always_ff @(posedge clk)
      if (rst) begin
        tries[g] <= '0;
        count[g] <= '0;
      end else begin
        if (give && q_mshr == MW'(g)) begin
          tries[g] <= tries[g] + 1'b1;
          count[g] <= count[g] + 1'b1;
        end
        if (real_cpl && cpl_mshr == MW'(g) && !once_more) tries[g] <= '0;
      end
  end
  always_ff @(posedge clk) if (give) writing[q_mshr] <= cmd_write;

  assign read_up  = give && !cmd_write;
  assign write_up = give && cmd_write;
  assign error_up = real_cpl && cpl_error;
  assign lost_up  = real_cpl && cpl_error && is_write && !once_more;
  assign stray_up = cpl_valid && cpl_ready && !known;

  stable #(.W(1 + CIDW + LW + PW)) check_cmd (.clk, .rst, .valid(cmd_valid), .ready(cmd_ready),
    .data({cmd_write, cmd_cid, cmd_line, cmd_place}));
  stable #(.W(MW)) check_fence (.clk, .rst, .valid(fence_valid), .ready(fence_ready),
    .data(fence_mshr));
`ifndef SYNTHESIS
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!q_in_valid || q_in_ready);     // each register is in each queue at most once
      assert (!end_in_valid || end_in_ready);
      assert (!give || !given[q_mshr]);       // one command of a register at a time
    end
`endif
endmodule
`default_nettype wire

// Stream windows: of what each of them wants (window.sv) one look-up of a line, or the freeing of a
// unit, a cycle; and whose each unit is.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module windows #(
  parameter int WINDOWS = 4, parameter int CW = 2,  // windows, bits of their numbers
  parameter int UNITS = 16, parameter int UW = 4,   // units, bits of their numbers
  parameter int UNIT_LOG = 4,                       // log2 of the lines of a unit
  parameter int LINE_LOG = 6,                       // log2 of the flits of a line
  parameter int LW = 19, parameter int NW = LW - UNIT_LOG
) (
  input  logic clk, rst, bug_mark, bug_limit, bug_early, bug_soon, bug_class,
  // registers, one window's after the other's
  input  logic [WINDOWS*64-1:0] addr, deadline, lead, input logic [WINDOWS*32-1:0] length,
  input  logic [WINDOWS*2-1:0] cls, input logic [WINDOWS*16-1:0] limit,
  input  logic [WINDOWS-1:0] go, release_to, input logic [31:0] order,
  input  logic [31:0] stage_most,      // of each class
  output logic [WINDOWS*32-1:0] mark, output logic [WINDOWS*6-1:0] state,
  output logic [63:0] clock,
  output logic idle,                   // none is on its way
  // what is to be decided
  output logic op_valid, input logic op_ready, output logic op_free, op_first, op_last,
  output logic [CW-1:0] op_window, output logic [UW-1:0] op_unit, output logic [LW-1:0] op_line,
  // a cycle later, the decision: the register that a first look-up took
  input  logic can_take, input logic [UW-1:0] took_unit,
  // the end of a unit's command
  input  logic came, broken, input logic [UW-1:0] which
);
  logic [WINDOWS-1:0] may_free, may_begin;
  logic [WINDOWS*2-1:0] of_class;
  logic [WINDOWS*NW-1:0] next;
  logic [WINDOWS*UW-1:0] begin_slot, free_slot;
  logic [UW-1:0] unit [WINDOWS*UNITS];  // by window and slot
  logic [CW-1:0] owner [UNITS];         // of a unit
  logic [UW-1:0] slot [UNITS];          // and its slot there
  logic [UW:0] under_way [4];           // units of each class
  logic [3:0] may_stage;

  // the one whose unit is being looked up, where that is, and how far
  logic probing;
  logic [CW-1:0] probing_window, begin_window, free_window;
  logic [NW-1:0] probing_number;
  logic [UNIT_LOG-1:0] index;

  wire op = op_valid && op_ready;
  wire begin_one = op && op_first;
  wire free_one  = op && op_free;
  wire [CW-1:0] ends = owner[which];
  for (genvar g = 0; g < 4; g++) begin : g_class
    assign may_stage[g] = {{(31-UW){1'b0}}, under_way[g]} < {24'd0, stage_most[g*8 +: 8]};
    always_ff @(posedge clk)
      if (rst) under_way[g] <= '0;
      else under_way[g] <= under_way[g] + {{UW{1'b0}}, begin_one && op_class == 2'(g)}
                           - {{UW{1'b0}}, (came || broken) && end_class == 2'(g)};
  end
  assign idle = under_way[0] == 0 && under_way[1] == 0 && under_way[2] == 0 && under_way[3] == 0;
  for (genvar g = 0; g < WINDOWS; g++) begin : g_window
    window #(.UNITS(UNITS), .UW(UW), .UNIT_LOG(UNIT_LOG), .LINE_LOG(LINE_LOG), .LW(LW)) u_window (
      .clk, .rst, .bug_mark, .bug_limit, .bug_early, .bug_soon,
      .addr(addr[g*64 +: 64]), .deadline(deadline[g*64 +: 64]), .lead(lead[g*64 +: 64]),
      .length(length[g*32 +: 32]),
      .cls(cls[g*2 +: 2]), .limit(limit[g*16 +: 16]), .go(go[g]), .release_to(release_to[g]),
      .order, .clock, .mark(mark[g*32 +: 32]), .state(state[g*6 +: 6]),
      .may_begin(may_begin[g]), .can_take,
      .may_stage(may_stage[of_class[g*2 +: 2]] || bug_class),
      .probing(probing && probing_window == CW'(g)),
      .begin_one(begin_one && op_window == CW'(g)),
      .of_class(of_class[g*2 +: 2]), .next(next[g*NW +: NW]),
      .begin_slot(begin_slot[g*UW +: UW]), .may_free(may_free[g]),
      .free_one(free_one && op_window == CW'(g)), .free_slot(free_slot[g*UW +: UW]),
      .came(came && ends == CW'(g)), .broken(broken && ends == CW'(g)), .end_slot(slot[which]));
  end

  // what is next: free before begin, the lowest number first; who begins: turns.sv
  always_comb begin
    free_window = '0;
    for (int i = WINDOWS - 1; i >= 0; i--)
      if (may_free[i]) free_window = CW'(i);
  end
  wire [1:0] begin_class;
  turns #(.WINDOWS(WINDOWS), .CW(CW)) u_turns (.clk, .rst, .bug_turns(1'b0), .may(may_begin),
    .of_class, .which(begin_window), .least(begin_class), .take(begin_one));
  wire unused = &{1'b0, begin_class};
  assign op_free   = |may_free;
  assign op_window = op_free ? free_window : probing ? probing_window : begin_window;
  assign op_first  = !op_free && !probing;
  assign op_last   = !op_free && probing && &index;
  assign op_valid  = op_free || probing || |may_begin;
  assign op_unit   = unit[{op_window, free_slot[op_window*UW +: UW]}];
  assign op_line   = probing ? {probing_number, index}
                             : {next[op_window*NW +: NW], {UNIT_LOG{1'b0}}};
  wire [1:0] op_class  = of_class[op_window*2 +: 2];
  wire [1:0] end_class = of_class[ends*2 +: 2];

  logic took;
  logic [CW-1:0] took_window;
  logic [UW-1:0] took_slot;
  always_ff @(posedge clk)
    if (rst) begin
      probing   <= 0;
      took      <= 0;
      index     <= '0;
      clock     <= '0;
    end else begin
      clock <= clock + 1'b1;
      took  <= begin_one;
      if (op && !op_free) begin
        probing <= !op_last;
        index   <= index + 1'b1;
      end
    end
  always_ff @(posedge clk) begin
    if (begin_one) begin
      probing_window <= op_window;
      probing_number <= next[op_window*NW +: NW];
    end
    took_window <= op_window;
    took_slot   <= begin_slot[op_window*UW +: UW];
    if (took) begin
      unit[{took_window, took_slot}] <= took_unit;
      owner[took_unit] <= took_window;
      slot[took_unit]  <= took_slot;
    end
  end
endmodule
`default_nettype wire

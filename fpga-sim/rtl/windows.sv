// Stream windows: what the prefetch registers order, turned into look-ups of lines (which make
// units) and the freeing of units, one a cycle at most; and the watermark. Units are begun, counted
// and freed in order; they may come in any order.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module windows #(
  parameter int WINDOWS = 4, parameter int CW = 2,  // windows, bits of their numbers
  parameter int UNITS = 16, parameter int UW = 4,   // units, bits of their numbers
  parameter int UNIT_LOG = 4,                       // log2 of the lines of a unit
  parameter int LINE_LOG = 6,                       // log2 of the flits of a line
  parameter int LW = 19, parameter int NW = LW - UNIT_LOG
) (
  input  logic clk, rst, bug_mark, bug_limit, bug_early,
  // registers
  input  logic [WINDOWS-1:0][63:0] addr, deadline, input logic [WINDOWS-1:0][31:0] length,
  input  logic [WINDOWS-1:0][1:0] cls, input logic [WINDOWS-1:0][15:0] limit,
  input  logic [WINDOWS-1:0] go, release_to, input logic [31:0] order,
  input  logic [7:0] stage_most,
  output logic [WINDOWS-1:0][31:0] mark, output logic [WINDOWS-1:0][5:0] state,
  output logic [63:0] clock,
  // what is to be decided
  output logic op_valid, input logic op_ready, output logic op_free, op_first, op_last,
  output logic [CW-1:0] op_window, output logic [UW-1:0] op_unit, output logic [LW-1:0] op_line,
  // a cycle later, the decision: the register that a first look-up took
  input  logic can_take, input logic [UW-1:0] took_unit,
  // the end of a unit's command
  input  logic came, broken, input logic [UW-1:0] which
);
  logic [WINDOWS-1:0] open, stop, drop, failed, late, refused, all, may_free, may_begin;
  logic [WINDOWS-1:0][NW-1:0] first;
  logic [WINDOWS-1:0][31:0] many, taken, freed, released;
  logic [WINDOWS-1:0][63:0] until_cycle;
  logic [WINDOWS-1:0][1:0] of_class;
  logic [WINDOWS-1:0][UW:0] most;
  logic [WINDOWS-1:0][UNITS-1:0] done, bad;  // by a unit's number in its window, modulo UNITS
  logic [WINDOWS-1:0][UNITS-1:0][UW-1:0] unit;
  logic [UNITS-1:0][CW-1:0] owner;           // of a unit
  logic [UNITS-1:0][UW-1:0] slot;            // and its number there
  logic [UW:0] under_way;                    // units of class 1 and above

  // the one whose unit is being looked up, and how far
  logic probing;
  logic [CW-1:0] probing_window, begin_window, free_window;
  logic [UNIT_LOG-1:0] index;

  for (genvar g = 0; g < WINDOWS; g++) begin : g_window
    wire [UW-1:0] f = freed[g][UW-1:0];
    wire [UW-1:0] m = mark[g][UW-1:0];
    wire [31:0] room_used = taken[g] - freed[g];
    assign all[g] = mark[g] == many[g] && many[g] != 0 && !refused[g];
    assign state[g] = {refused[g], stop[g], late[g], failed[g], all[g], open[g]};
    assign may_free[g] = open[g] && freed[g] != taken[g] && (done[g][f] || bad[g][f]) &&
        (drop[g] ? !(freed[g] == mark[g] && done[g][f])
                 : freed[g] < released[g] && (freed[g] < mark[g] || bug_early));
    assign may_begin[g] = open[g] && !stop[g] && taken[g] != many[g] && can_take &&
        (room_used < {{(31-UW){1'b0}}, most[g]} || bug_limit) &&
        (of_class[g] == 0 || {{(31-UW){1'b0}}, under_way} < {24'd0, stage_most}) &&
        !(broken && owner[which] == CW'(g));

    wire [NW-1:0] from = addr[g][6+LINE_LOG+UNIT_LOG +: NW];
    wire beyond = |addr[g][63:6+LINE_LOG+LW] ||
                  {{(33-NW){1'b0}}, from} + {1'b0, length[g]} > 33'd1 << NW;
    wire begins = go[g] && order[1:0] == 2'd1 && !open[g];
    always_ff @(posedge clk)
      if (rst) begin
        open[g] <= 0;
        stop[g] <= 0;
        drop[g] <= 0;
        late[g] <= 0;
        refused[g] <= 0;
        many[g] <= '0;
        mark[g] <= '0;
      end else if (begins) begin
        open[g] <= length[g] != 0 && limit[g] != 0 && !beyond;
        refused[g] <= length[g] == 0 || limit[g] == 0 || beyond;
        stop[g] <= 0;
        drop[g] <= 0;
        late[g] <= 0;
        first[g] <= from;
        many[g] <= length[g];
        until_cycle[g] <= deadline[g];
        of_class[g] <= cls[g];
        most[g] <= |limit[g][15:UW] ? (UW+1)'(UNITS) : limit[g][UW:0];
        mark[g] <= '0;
        released[g] <= '0;
      end else begin
        if (go[g] && order[1]) stop[g] <= 1;
        if (go[g] && order[1:0] == 2'd3) drop[g] <= 1;
        if (open[g] && release_to[g] && order > released[g]) released[g] <= order;
        if (broken && owner[which] == CW'(g)) stop[g] <= 1;
        if (open[g] && !all[g] && clock > until_cycle[g]) late[g] <= 1;
        if (open[g] && mark[g] != taken[g] && done[g][m]) mark[g] <= mark[g] + 1;
        if (bug_mark && broken && owner[which] == CW'(g)) mark[g] <= freed[g];
        if ((stop[g] || taken[g] == many[g]) && freed[g] == taken[g] &&
            !(probing && probing_window == CW'(g))) open[g] <= 0;
      end
  end

  // what is next: free before begin; the lowest class first, and of equals the lowest number
  always_comb begin
    free_window = '0;
    begin_window = '0;
    for (int i = WINDOWS - 1; i >= 0; i--) begin
      if (may_free[i]) free_window = CW'(i);
      if (may_begin[i] && (!may_begin[begin_window] || of_class[i] <= of_class[begin_window]))
        begin_window = CW'(i);
    end
  end
  assign op_free   = |may_free;
  assign op_window = op_free ? free_window : probing ? probing_window : begin_window;
  assign op_first  = !op_free && !probing;
  assign op_last   = !op_free && probing && &index;
  assign op_valid  = op_free || probing || |may_begin;
  wire [NW-1:0] number = NW'(taken[op_window]) - {{(NW-1){1'b0}}, probing};
  assign op_unit   = unit[op_window][freed[op_window][UW-1:0]];
  assign op_line   = {first[op_window] + number, probing ? index : {UNIT_LOG{1'b0}}};
  wire op = op_valid && op_ready;
  wire begin_one = op && op_first;
  wire free_one = op && op_free;

  logic took;
  logic [CW-1:0] took_window;
  logic [UW-1:0] took_slot;
  wire [CW-1:0] ends = owner[which];
  always_ff @(posedge clk)
    if (rst) begin
      probing <= 0;
      took    <= 0;
      index   <= '0;
      clock   <= '0;
      done    <= '0;
      bad     <= '0;
      taken   <= '0;
      freed   <= '0;
      under_way <= '0;
      failed  <= '0;
    end else begin
      clock <= clock + 1'b1;
      took  <= begin_one;
      if (op && !op_free) begin
        probing <= !op_last;
        index   <= index + 1'b1;
      end
      if (begin_one) taken[op_window] <= taken[op_window] + 1;
      if (free_one) begin
        freed[op_window] <= freed[op_window] + 1;
        done[op_window][freed[op_window][UW-1:0]] <= 0;
        bad[op_window][freed[op_window][UW-1:0]]  <= 0;
      end
      if (came) done[ends][slot[which]] <= 1;
      if (broken) begin
        bad[ends][slot[which]] <= 1;
        failed[ends] <= 1;
      end
      under_way <= under_way + {{UW{1'b0}}, begin_one && of_class[op_window] != 0}
                             - {{UW{1'b0}}, (came || broken) && of_class[ends] != 0};
      for (int i = 0; i < WINDOWS; i++)
        if (go[i] && order[1:0] == 2'd1 && !open[i]) begin
          taken[i] <= '0;
          freed[i] <= '0;
          failed[i] <= 0;
        end
    end
  always_ff @(posedge clk) begin
    if (op) begin
      took_window <= op_window;
      took_slot   <= taken[op_window][UW-1:0];
      if (op_first) probing_window <= op_window;
    end
    if (took) begin
      unit[took_window][took_slot] <= took_unit;
      owner[took_unit] <= took_window;
      slot[took_unit]  <= took_slot;
    end
  end
`ifndef SYNTHESIS
  // progress never goes back, and is never ahead of what was begun
  logic [WINDOWS-1:0][31:0] mark_before;
  logic [WINDOWS-1:0] same;
  always_ff @(posedge clk) begin
    mark_before <= mark;
    for (int i = 0; i < WINDOWS; i++) begin
      same[i] <= !rst && !(go[i] && order[1:0] == 2'd1 && !open[i]);
      if (!rst && same[i]) assert (mark[i] >= mark_before[i]);
      if (!rst && open[i]) assert (mark[i] <= taken[i]);
      if (!rst && open[i]) assert (taken[i] - freed[i] <= {{(31-UW){1'b0}}, most[i]});
    end
  end
`endif
endmodule
`default_nettype wire

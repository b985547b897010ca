// What one look-up finds in its set, and what the set becomes: combinational, no state. A way is,
// from bit 0: valid, dirty, age (4 bits), tag. Dirty without valid: the line is on its way.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module choose #(
  parameter int TAGW = 9,  // bits of a tag: log2 of (flash lines / sets)
  parameter int WAYS = 16, // ITME's
  parameter int WW = 4     // bits of a way's number
) (
  input  logic bug_age, bug_victim, bug_pending, bug_dirty, bug_old, bug_held,
  input  logic [WAYS*(TAGW+6)-1:0] ways_in, input logic [TAGW-1:0] tag,
  output logic hit, pending, output logic [WW-1:0] hit_way,  // pending: it is on its way
  input  logic [WAYS-1:0] held,          // stay where they are, and dirty: they are being cleaned
  output logic clean_found, output logic [WW-1:0] clean_way,  // the oldest that could be
  output logic [TAGW-1:0] clean_tag,
  output logic can_evict, evicts, dirty, output logic [WW-1:0] victim_way,
  output logic [TAGW-1:0] victim_tag,
  input  logic touch, write,             // a hit
  input  logic miss,                     // the victim's way is taken for tag
  input  logic fill, cleaned, broken, input logic [WW-1:0] fill_way,
  output logic [WAYS*(TAGW+6)-1:0] next
);
  localparam int B = TAGW + 6;
  logic [WAYS-1:0] valid, dirt;
  logic empty_found;
  logic [3:0] low;
  for (genvar g = 0; g < WAYS; g++) begin : g_bits
    assign valid[g] = ways_in[g*B];
    assign dirt[g]  = ways_in[g*B+1];
  end
  always_comb begin
    hit = 0;
    pending = 0;
    hit_way = '0;
    for (int w = 0; w < WAYS; w++)
      if ((valid[w] || dirt[w]) && ways_in[w*B+6 +: TAGW] == tag) begin
        hit     = valid[w];
        pending = !valid[w];
        hit_way = WW'(w);
      end
  end
  always_comb begin
    can_evict = 0;
    empty_found = 0;
    victim_way = '0;
    low = '0;
    for (int w = 0; w < WAYS; w++)
      if (!empty_found) begin
        if (!valid[w] && !dirt[w]) begin
          empty_found = 1;
          can_evict = 1;
          victim_way = WW'(w);
        end else if ((valid[w] || bug_pending) && (!held[w] || bug_held) &&
                     (!can_evict || ways_in[w*B+2 +: 4] < low ||
                      (bug_victim && ways_in[w*B+2 +: 4] == low))) begin
          can_evict = 1;
          low = ways_in[w*B+2 +: 4];
          victim_way = WW'(w);
        end
      end
    evicts     = can_evict && valid[victim_way];
    dirty      = evicts && dirt[victim_way] && !(bug_dirty && victim_way == '1);
    victim_tag = ways_in[victim_way*B+6 +: TAGW];
  end
  logic [3:0] oldest;
  always_comb begin
    clean_found = 0;
    clean_way = '0;
    oldest = '0;
    for (int w = 0; w < WAYS; w++)
      if (valid[w] && dirt[w] && !held[w] && (!clean_found || ways_in[w*B+2 +: 4] < oldest)) begin
        clean_found = 1;
        oldest = ways_in[w*B+2 +: 4];
        clean_way = WW'(w);
      end
    clean_tag = ways_in[clean_way*B+6 +: TAGW];
  end
  for (genvar g = 0; g < WAYS; g++) begin : g_next
    wire [3:0] age = ways_in[g*B+2 +: 4];
    logic [B-1:0] way;
    always_comb begin
      way = ways_in[g*B +: B];
      if (touch && hit_way == WW'(g)) begin
        way[2 +: 4] = '1;
        way[1] = dirt[g] || write;
      end
      if (miss) begin
        if (age != 0 && !bug_age) way[2 +: 4] = age - 1'b1;
        if (victim_way == WW'(g)) way = {tag, 4'hf, 1'b1, 1'b0};
      end
      if (fill && fill_way == WW'(g)) begin
        way[1:0] = 2'b01;
        way[2 +: 4] = bug_old ? '0 : way[2 +: 4];
        if (broken) way = '0;
      end
      if (cleaned && !broken && fill_way == WW'(g)) way[1] = 0;
    end
    assign next[g*B +: B] = way;
  end
endmodule
`default_nettype wire

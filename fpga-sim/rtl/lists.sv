// Requests that wait, as linked lists of slots: one of each miss register and of each unit (`MANY`
// of them), and three beside them: those whose line has come, those whose line could not be read,
// those that have to try again. A list is moved to the end of another at once, whatever its length.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module lists #(
  parameter int LOG = 6,   // log2 of the slots
  parameter int MANY = 8,  // miss registers and units
  parameter int IW = 3     // bits of their numbers
) (
  input  logic clk, rst, bug_join, bug_order,
  input  logic wait_one, // the slot is one more of the register's list, or its first
  input  logic again,    // ... has to try again
  input  logic [LOG-1:0] slot, input logic [IW-1:0] who,
  input  logic end_came, end_failed,  // the register's list moves to one of the two
  output logic [2:0] waiting, // lists that are not empty: came, failed, again
  output logic [LOG-1:0] came_slot, failed_slot, again_slot,
  input  logic [2:0] pop
);
  logic [LOG-1:0] next [1 << LOG];
  logic [LOG-1:0] first [MANY];
  logic [LOG-1:0] last [MANY];
  logic [MANY-1:0] some;
  wire start  = wait_one && !some[who];
  wire append = wait_one && some[who];
  wire came   = end_came && some[who];
  wire failed = end_failed && some[who];
  logic [LOG-1:0] head [3];
  logic [LOG-1:0] tail [3];

  // what is added to which of the three
  logic [2:0] add, left;
  logic [LOG-1:0] add_head, add_tail, from;
  always_comb begin
    add      = {again, failed, came};
    add_head = again ? slot : first[who];
    add_tail = again ? slot : last[who];
    for (int i = 0; i < 3; i++) left[i] = waiting[i] && !(pop[i] && head[i] == tail[i]);
    from = last[who];
    for (int i = 0; i < 3; i++) if (add[i]) from = tail[i];
  end
  wire link = (append && !bug_join) || |(add & left);

  assign came_slot   = head[0];
  assign failed_slot = head[1];
  assign again_slot  = head[2];
  always_ff @(posedge clk) if (link) next[from] <= append ? slot : add_head;
  always_ff @(posedge clk) begin
    if (start) first[who] <= slot;
    if (start || append) last[who] <= slot;
  end
  always_ff @(posedge clk)
    if (rst) begin
      waiting <= '0;
      some    <= '0;
    end else begin
      waiting <= left | add;
      if (wait_one) some[who] <= 1;
      if (came || failed) some[who] <= 0;
      for (int i = 0; i < 3; i++) begin
        if (add[i] && !left[i]) head[i] <= add_head;
        else if (pop[i]) head[i] <= next[head[i]];
        if (add[i] && !(bug_order && left[i])) tail[i] <= add_tail;
      end
    end
`ifndef SYNTHESIS
  always_ff @(posedge clk)
    if (!rst) begin
      assert ((pop & ~waiting) == 0);
      assert ({2'b0, start} + {2'b0, append} + {2'b0, again} + {2'b0, came} + {2'b0, failed} <= 1);
    end
`endif
endmodule
`default_nettype wire

// Requests that wait, as linked lists of slots: one of each miss register (`MSHRS` of them), and
// three beside them: those whose line has come, those whose line could not be read, those that
// have to try again. A list is moved to the end of another at once, whatever its length.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module lists #(
  parameter int LOG = 6,   // log2 of the slots
  parameter int MSHRS = 8, // miss registers
  parameter int MW = 3     // bits of a miss register's number
) (
  input  logic clk, rst, bug_join, bug_order,
  input  logic start,    // the slot is the first of the register's list
  input  logic append,   // ... is one more of it
  input  logic again,    // ... has to try again
  input  logic [LOG-1:0] slot, input logic [MW-1:0] mshr,
  input  logic came, failed,  // the register's list moves to one of the two
  output logic [2:0] waiting, // lists that are not empty: came, failed, again
  output logic [LOG-1:0] came_slot, failed_slot, again_slot,
  input  logic [2:0] pop
);
  logic [LOG-1:0] next [1 << LOG];
  logic [LOG-1:0] first [MSHRS];
  logic [LOG-1:0] last [MSHRS];
  logic [LOG-1:0] head [3];
  logic [LOG-1:0] tail [3];

  // what is added to which of the three
  logic [2:0] add, left;
  logic [LOG-1:0] add_head, add_tail, from;
  always_comb begin
    add      = {again, failed, came};
    add_head = again ? slot : first[mshr];
    add_tail = again ? slot : last[mshr];
    for (int i = 0; i < 3; i++) left[i] = waiting[i] && !(pop[i] && head[i] == tail[i]);
    from = last[mshr];
    for (int i = 0; i < 3; i++) if (add[i]) from = tail[i];
  end
  wire link = (append && !bug_join) || |(add & left);

  assign came_slot   = head[0];
  assign failed_slot = head[1];
  assign again_slot  = head[2];
  always_ff @(posedge clk) if (link) next[from] <= append ? slot : add_head;
  always_ff @(posedge clk) begin
    if (start) first[mshr] <= slot;
    if (start || append) last[mshr] <= slot;
  end
  always_ff @(posedge clk)
    if (rst) waiting <= '0;
    else begin
      waiting <= left | add;
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

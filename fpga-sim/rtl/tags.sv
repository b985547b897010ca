// The tags of all sets in one block RAM, a word a set: one read and one write a cycle. A read sees
// the write of the same cycle (forwarding), so a decision a cycle needs no lock; ITME loses 20-25%
// to one of three cycles. After a reset all words are cleared, one a cycle.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module tags #(
  parameter int SETS_LOG = 10, // log2 of the sets
  parameter int W = 240        // bits of a set
) (
  input  logic clk, rst, bug_forward,
  output logic ready,          // all are cleared
  input  logic read, input logic [SETS_LOG-1:0] read_set,
  output logic [W-1:0] word,   // in the next cycle
  input  logic write, input logic [SETS_LOG-1:0] write_set, input logic [W-1:0] write_word
);
  logic [W-1:0] ram [1 << SETS_LOG];
  logic [W-1:0] stored, forwarded;
  logic forward;
  logic [SETS_LOG:0] cleared;
  assign ready = cleared[SETS_LOG];
  assign word  = forward ? forwarded : stored;
  wire put = write || !ready;
  wire [SETS_LOG-1:0] put_set = ready ? write_set : cleared[SETS_LOG-1:0];
  wire [W-1:0] put_word = ready ? write_word : '0;
  always_ff @(posedge clk)
    if (rst) cleared <= '0;
    else if (!ready) cleared <= cleared + 1'b1;
  always_ff @(posedge clk) begin
    if (put) ram[put_set] <= put_word;
    if (read) stored <= ram[read_set];
    forward   <= read && write && read_set == write_set && !bug_forward;
    forwarded <= write_word;
  end
endmodule
`default_nettype wire

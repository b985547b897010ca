// Inside slots.sv, proved by induction: no credit is lost, none comes back twice, no slot is taken
// that is in use. It rests on this: a slot was never used, or is in use, or is in the queue once.
// SPDX-License-Identifier: Apache-2.0
  localparam int SLOTS = 1 << LOG;
  logic started = 0;
  logic [SLOTS-1:0] taken;
  logic [LOG:0] taken_now;
  always_ff @(posedge clk) begin
    started <= 1;
    if (rst) taken <= '0;
    else begin
      if (free) taken[answer_slot] <= 0;
      if (take) taken[take_slot] <= 1;
    end
  end
  // who asks: takes where there is a credit, gives back what was taken
  always_comb begin
    if (!started) assume (rst);
    if (started) assume (!rst);
    assume (bug_leak == `BUG && !bug_poison);
    assume (!take || has_free);
    assume (!free || (taken[answer_slot] && !rst));
    taken_now = '0;
    for (int i = 0; i < SLOTS; i++) taken_now = taken_now + {{LOG{1'b0}}, taken[i]};
  end
  always_ff @(posedge clk)
    if (started && !rst) begin
      if (take) assert (!taken[take_slot]);
      assert (has_free == (taken != '1));
      assert (used == taken_now);
      assert (once && fresh <= {1'b1, {LOG{1'b0}}});
      for (int i = 0; i < SLOTS; i++)
        assert ({1'b0, (LOG+1)'(i) >= fresh} + {1'b0, taken[i]} + {1'b0, holds[i]} == 2'd1);
    end

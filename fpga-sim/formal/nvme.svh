// Inside nvme.sv, proved by induction, whatever drives write: a queue never holds more than it has
// room for; no doorbell is forgotten: what was rung last is where the queue is, or a ring is due.
// SPDX-License-Identifier: Apache-2.0
  logic started_proof = 0, dma_held = 0;
  logic [192:0] dma_was;
  logic [QLOG:0] count [QUEUES];
  logic [QLOG-1:0] told_tail [QUEUES];
  logic [QLOG-1:0] told_head [QUEUES];
  always_ff @(posedge clk) begin
    started_proof <= 1;
    dma_held      <= !rst && dma_valid && !dma_ready;
    dma_was       <= {dma_write, dma_addr, dma_wdata};
  end
  always_comb begin
    if (!started_proof) assume (rst);
    assume (bug_full == `BUG && !bug_head && !bug_bell && !bug_list && !bug_blocks);
    // what a drive offers stays until it is taken (stable.sv)
    assume (!dma_held || (dma_valid && {dma_write, dma_addr, dma_wdata} == dma_was));
  end
  for (genvar g = 0; g < QUEUES; g++) begin : g_proof
    wire in  = enter && enter_queue == QW'(g);
    wire out = done && at_queue == QW'(g) && dma_wdata[79:64+QLOG] == '0 && more <= most;
    always_ff @(posedge clk)
      if (rst) begin
        count[g]     <= '0;
        told_tail[g] <= '0;
        told_head[g] <= '0;
      end else begin
        count[g] <= count[g] + {{QLOG{1'b0}}, in} - (out ? {1'b0, more} : '0);
        if (rings && bell_queue == QW'(g) && bell_head) told_head[g] <= head[g];
        if (rings && bell_queue == QW'(g) && !bell_head) told_tail[g] <= tail[g];
      end
    always_ff @(posedge clk)
      if (started_proof && !rst) begin
        assert (count[g] < {1'b1, {QLOG{1'b0}}});
        assert ({1'b0, QLOG'(tail[g] - taken[g])} == count[g]);
        assert (ring_tail[g] || told_tail[g] == tail[g]);
        assert (ring_head[g] || told_head[g] == head[g]);
      end
  end

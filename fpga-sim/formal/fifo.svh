// Inside fifo.sv, proved by induction: never more inside than there is room for, whoever offers and
// takes as he likes; an entry that is watched comes out behind those before it, unchanged.
// SPDX-License-Identifier: Apache-2.0
  logic started = 0, watching = 0;
  (* anyseq *) logic watch;
  logic [LOG:0] count, ahead;
  logic [W-1:0] watched;
  wire put = in_valid && (in_ready || `BUG);  // the planted bug: without asking for room
  wire get = out_valid && out_ready;
  wire [LOG:0] where = head + ahead;
  wire [LOG:0] inside_now = tail - head;
  always_ff @(posedge clk) begin
    started <= 1;
    if (rst) begin
      count    <= '0;
      watching <= 0;
    end else begin
      count <= count + {{LOG{1'b0}}, put} - {{LOG{1'b0}}, get};
      if (put && watch && !watching) begin
        watching <= 1;
        watched  <= in_data;
        ahead    <= count - {{LOG{1'b0}}, get};
      end else if (watching && get) begin
        ahead <= ahead - 1'b1;
        if (ahead == 0) watching <= 0;
      end
    end
  end
  always_comb if (!started) assume (rst);
  always_ff @(posedge clk)
    if (started && !rst) begin
      assert (count <= {1'b1, {LOG{1'b0}}});
      assert (inside_now == count);
      if (watching) begin
        assert (ahead < count);
        assert (entry[where[LOG-1:0]] == watched);
      end
    end

// The NVMe initiator: commands and aborts (flash.sv) go into the submission queues of one or two
// drives, which read them here; completion entries that drives write here go back as answers. Of
// an entry only what it is made of is kept, lists of pages are computed when they are read, and a
// completion entry is taken in the cycle in which it is written: that ring is nowhere.
// SPDX-License-Identifier: Apache-2.0
`default_nettype none
module nvme #(
  parameter int DRIVES = 2,     // 1 or 2
  parameter int QLOG = 4,       // log2 of the entries of a queue, 1 to 9
  parameter int LINE_LOG = 6, parameter int UNIT_LOG = 2,
  parameter int IW = 5,         // bits of the register in a command's number
  parameter int LW = 19, parameter int PW = 15,  // bits of a line's number, of a place's
  localparam int CIDW = 16, localparam int GW = CIDW - IW
) (
  input  logic clk, rst,
  input  logic bug_bell, bug_phase, bug_full, bug_list, bug_blocks, bug_fate, bug_stripe, bug_head,
  input  logic bug_status, bug_csts,
  output logic [1:0] started, output logic wrong_up,
  // commands and aborts, and their answers
  input  logic cmd_valid, output logic cmd_ready, cmd,
  input  logic cmd_write, input logic [CIDW-1:0] cmd_cid,
  input  logic [LW-1:0] cmd_line, input logic [PW-1:0] cmd_place, input logic cmd_unit,
  input  logic abort_valid, output logic abort_ready, input logic [CIDW-1:0] abort_cid,
  output logic cpl_valid, output logic [CIDW-1:0] cpl_cid, output logic cpl_error,
  // registers of the drives, doorbells among them
  output logic mmio_valid, input logic mmio_ready, output logic mmio_write, mmio_drive,
  output logic [12:0] mmio_addr, output logic [63:0] mmio_wdata,
  input  logic mmio_rvalid, output logic mmio_rready, input logic [31:0] mmio_rdata,
  // what drives read and write: 64 bytes, 16 bytes
  input  logic dma_valid, output logic dma_ready, input logic dma_write,
  input  logic [63:0] dma_addr, input logic [127:0] dma_wdata,
  output logic dma_rvalid, input logic dma_rready, output logic dma_rerror,
  output logic [511:0] dma_rdata
);
  localparam int QUEUES = 2 * DRIVES, QW = $clog2(QUEUES);  // of drive 0: admin, I/O; of drive 1
  localparam int EW = 4 + CIDW + LW + PW;
  localparam logic [2:0] WRITE = 1, ABORT = 2, CREATE_CQ = 3, CREATE_SQ = 4;
  logic [QLOG-1:0] tail [QUEUES];   // of submission: given
  logic [QLOG-1:0] taken [QUEUES];    // ... and taken by the drive, as far as it has said
  logic [QLOG-1:0] head [QUEUES];     // of completion
  logic [QUEUES-1:0] phase, ring_tail, ring_head, room;
  logic [EW-1:0] kept [QUEUES << QLOG];
  logic [(1<<IW)-1:0] where; // the drive that has a register's command
  for (genvar g = 0; g < QUEUES; g++) begin : g_room
    assign room[g] = QLOG'(tail[g] + 1'b1) != taken[g] || bug_full;
  end

  // --- submission: the start's orders, else an abort, else a command; one a cycle
  logic order_valid, order_ready, order_sq, starting;
  wire cmd_drive   = DRIVES == 2 && cmd_line[UNIT_LOG];
  wire abort_drive = DRIVES == 2 && where[abort_cid[IW-1:0]];
  wire [QW-1:0] order_queue = QW'({starting, 1'b0});
  wire [QW-1:0] abort_queue = QW'({abort_drive, 1'b0});
  wire [QW-1:0] cmd_queue   = QW'({cmd_drive, 1'b1});
  assign order_ready = room[order_queue];
  wire do_order = order_valid && order_ready;
  assign abort_ready = !do_order && room[abort_queue];
  wire do_abort = abort_valid && abort_ready;
  assign cmd_ready = !do_order && !do_abort && started[cmd_drive] && room[cmd_queue];
  assign cmd = cmd_valid && cmd_ready;
  wire enter = do_order || do_abort || cmd;
  wire [QW-1:0] enter_queue = do_order ? order_queue : do_abort ? abort_queue : cmd_queue;
  wire [2:0] enter_op = do_order ? (order_sq ? CREATE_SQ : CREATE_CQ) : do_abort ? ABORT
                      : {2'd0, cmd_write};
  wire [CIDW-1:0] enter_cid = do_order ? CIDW'(order_sq) : do_abort ? abort_cid : cmd_cid;
  // neighbouring units lie on the drives in turn
  wire [LW-1:0] in_drive = DRIVES == 1 || bug_stripe ? cmd_line
      : {1'b0, cmd_line[LW-1:UNIT_LOG+1], cmd_line[UNIT_LOG-1:0]};
  always_ff @(posedge clk) begin
    if (enter) kept[{enter_queue, tail[enter_queue]}] <=
        {enter_op, cmd_unit, enter_cid, in_drive, cmd_place};
    if (cmd) where[cmd_cid[IW-1:0]] <= cmd_drive;
  end

  // --- what a drive reads: an entry, or a list
  wire is_list   = dma_addr[63:47] == 17'd1;
  wire is_queues = dma_addr[63:48] == 16'd1 && dma_addr[47:21] == '0 && dma_addr[19:17] == '0 &&
                   (DRIVES == 2 || !dma_addr[20]);
  wire [QW-1:0] at_queue = QW'({dma_addr[20], dma_addr[16]});
  wire is_entry  = is_queues && dma_addr[15:6+QLOG] == '0;
  wire is_done   = is_queues && dma_addr[15] && dma_addr[14:4+QLOG] == '0 && dma_addr[3:0] == '0;
  assign dma_ready = !dma_rvalid || dma_rready;
  wire dma    = dma_valid && dma_ready;
  wire reads  = dma && !dma_write;
  logic [EW-1:0] kept_out;
  logic list_out, drive_out;
  logic [46:0] at_out;
  always_ff @(posedge clk)
    if (rst) dma_rvalid <= 0;
    else if (dma_ready) dma_rvalid <= reads;
  always_ff @(posedge clk)
    if (reads) begin
      kept_out   <= kept[{at_queue, dma_addr[6 +: QLOG]}];
      list_out   <= is_list;
      drive_out  <= dma_addr[20];
      at_out     <= dma_addr[46:0];
      dma_rerror <= !((is_list && !dma_addr[46]) || is_entry) || dma_addr[5:0] != '0;
    end
  logic [2:0] out_op;
  logic out_unit;
  logic [CIDW-1:0] out_cid;
  logic [LW-1:0] out_line;
  logic [PW-1:0] out_place;
  logic [511:0] out_bytes;
  assign {out_op, out_unit, out_cid, out_line, out_place} = kept_out;
  nvme_entry #(.LINE_LOG(LINE_LOG), .UNIT_LOG(UNIT_LOG), .QLOG(QLOG), .LW(LW), .PW(PW),
    .IW(IW)) u_entry (.bug_list, .bug_blocks, .op(out_op), .cid(out_cid), .unit(out_unit),
    .drive(drive_out), .line(out_line), .place(out_place), .is_list(list_out), .at(at_out[45:0]),
    .bytes(out_bytes));
  assign dma_rdata = dma_rerror ? '0 : out_bytes;

  // --- what a drive writes: a completion entry, right when it is the next one
  wire [QLOG-1:0] sqhd = dma_wdata[64 +: QLOG];
  wire [CIDW-1:0] done_cid = dma_wdata[96 +: CIDW];
  wire [IW-1:0] done_who   = done_cid[IW-1:0];
  wire failed = dma_wdata[127:113] != '0 && !bug_status;
  wire due    = is_done && dma_addr[4 +: QLOG] == head[at_queue] &&
                (dma_wdata[112] == phase[at_queue] || bug_phase);
  wire done   = dma && dma_write && due;
  wire of_io  = at_queue[0];
  wire of_start = !of_io && !started[DRIVES == 2 && dma_addr[20]];
  wire [QLOG-1:0] more = sqhd - taken[at_queue];
  wire [QLOG-1:0] most = tail[at_queue] - taken[at_queue];
  assign wrong_up = dma && dma_write && !due;
  // was a register's last command answered as done? What an abort of it says
  logic [GW-1:0] last [1 << IW];
  logic [(1<<IW)-1:0] good;
  always_ff @(posedge clk)
    if (rst) begin
      good      <= '0;
      cpl_valid <= 0;
    end else begin
      cpl_valid <= done && !of_start;
      if (done && of_io && last[done_who] == done_cid[CIDW-1:IW]) good[done_who] <= !failed;
      if (cmd) good[cmd_cid[IW-1:0]] <= 0;
    end
  always_ff @(posedge clk) begin
    if (cmd) last[cmd_cid[IW-1:0]] <= cmd_cid[CIDW-1:IW];
    cpl_cid   <= done_cid;
    cpl_error <= of_io ? failed : !good[done_who] && !bug_fate;
  end

  // --- doorbells: I/O submission, admin submission, completion; the start's registers before them
  logic set_valid, set_write;
  logic [12:0] set_addr;
  logic [63:0] set_data;
  wire free_bell = !mmio_valid || mmio_ready;
  logic bell, bell_head;
  logic [QW-1:0] bell_queue;
  always_comb begin
    bell = 0;
    bell_head = 0;
    bell_queue = '0;
    for (int k = 2 * QUEUES - 1; k >= 0; k--)
      if (k >= QUEUES ? ring_head[k % QUEUES] : ring_tail[(k % DRIVES) * 2 + (k < DRIVES ? 1 : 0)])
      begin
        bell       = 1;
        bell_head  = k >= QUEUES;
        bell_queue = k >= QUEUES ? QW'(k) : QW'((k % DRIVES) * 2 + (k < DRIVES ? 1 : 0));
      end
  end
  wire rings = free_bell && !set_valid && bell;
  assign mmio_rready = 1;
  always_ff @(posedge clk)
    if (rst) mmio_valid <= 0;
    else if (free_bell) mmio_valid <= set_valid || bell;
  always_ff @(posedge clk)
    if (free_bell) begin
      mmio_write <= !set_valid || set_write;
      mmio_drive <= set_valid ? starting : DRIVES == 2 && bell_queue[QW-1];
      mmio_addr  <= set_valid ? set_addr : {9'h100, bell_queue[0], bell_head, 2'd0};
      mmio_wdata <= set_valid ? set_data
                  : {{(64-QLOG){1'b0}}, bell_head ? head[bell_queue] : tail[bell_queue]};
    end
  for (genvar g = 0; g < QUEUES; g++) begin : g_queue
    wire entered = enter && enter_queue == QW'(g);
    wire ended   = done && at_queue == QW'(g);
    wire rung    = rings && bell_queue == QW'(g);
    always_ff @(posedge clk)
      if (rst) begin
        tail[g]      <= '0;
        taken[g]     <= '0;
        head[g]      <= '0;
        phase[g]     <= 1;
        ring_tail[g] <= 0;
        ring_head[g] <= 0;
      end else begin
        if (entered) tail[g] <= tail[g] + 1'b1;
        if (ended) head[g] <= head[g] + 1'b1;
        if (ended && &head[g]) phase[g] <= !phase[g];
        if (ended && dma_wdata[79:64+QLOG] == '0 && (more <= most || bug_head)) taken[g] <= sqhd;
        if (entered) ring_tail[g] <= 1;
        if (rung && !bell_head && (!entered || bug_bell)) ring_tail[g] <= 0;
        if (ended) ring_head[g] <= 1;
        else if (rung && bell_head) ring_head[g] <= 0;
      end
  end

  nvme_start #(.DRIVES(DRIVES), .QLOG(QLOG)) u_start (.clk, .rst, .bug_csts, .started,
    .drive(starting), .set_valid, .set_ready(free_bell), .set_write, .set_addr, .set_data,
    .got_valid(mmio_rvalid), .got_data(mmio_rdata),
    .order_valid, .order_ready, .order_sq,
    .answer_valid(done && of_start && (DRIVES == 1 || dma_addr[20] == starting)),
    .answer_error(failed));

  stable #(.W(79)) check_mmio (.clk, .rst, .valid(mmio_valid), .ready(mmio_ready),
    .data({mmio_write, mmio_drive, mmio_addr, mmio_wdata}));
  stable #(.W(32)) check_mmio_r (.clk, .rst, .valid(mmio_rvalid), .ready(mmio_rready),
    .data(mmio_rdata));
  stable #(.W(193)) check_dma (.clk, .rst, .valid(dma_valid), .ready(dma_ready),
    .data({dma_write, dma_addr, dma_write ? dma_wdata : 128'd0}));
  stable #(.W(513)) check_dma_r (.clk, .rst, .valid(dma_rvalid), .ready(dma_rready),
    .data({dma_rerror, dma_rdata}));
  wire unused = &{1'b0, dma_wdata[63:0], dma_wdata[95:80], at_out[46], WRITE};
`ifdef PROVE_NVME
`include "nvme.svh"
`endif
endmodule
`default_nettype wire

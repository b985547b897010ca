/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pins of the device as C sees them, and the simulated device behind them (shell.cpp). A cycle:
 * fill `in`, rtl_settle, look at `out`, rtl_tick.
 */
#ifndef TIER_FPGA_PINS_H
#define TIER_FPGA_PINS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PINS_SET_WORDS 16u /* of 32 bits: a set's ways, at most */

struct pins_in {
	bool rst;
	uint8_t bug;
	bool ar_valid, aw_valid, w_valid, w_poison, r_ready, b_ready;
	uint16_t ar_id, aw_id;
	uint64_t ar_addr, aw_addr;
	uint8_t w_data[64];
	bool reg_valid, reg_write, reg_rready;
	uint16_t reg_addr;
	uint64_t reg_wdata;
	bool dram_ready, mem_valid, mem_poison;
	uint8_t mem_data[64];
	bool mmio_ready, mmio_rvalid, dma_valid, dma_write, dma_rready;
	uint32_t mmio_rdata;
	uint64_t dma_addr;
	uint8_t dma_wdata[16];
};

struct pins_out {
	bool ar_ready, aw_ready, w_ready, r_valid, r_poison, b_valid;
	uint16_t r_id, b_id;
	uint8_t r_resp, b_resp;
	uint8_t r_data[64];
	bool reg_ready, reg_rvalid, reg_error;
	uint64_t reg_rdata;
	bool dram_valid, dram_write, dram_wpoison, mem_ready;
	uint64_t dram_flit;
	uint8_t dram_wdata[64];
	bool mmio_valid, mmio_write, mmio_drive, mmio_rready;
	uint16_t mmio_addr;
	uint64_t mmio_wdata;
	bool dma_ready, dma_rvalid, dma_rerror;
	uint8_t dma_rdata[64];
	/* what enters a queue in this cycle, and what came of one */
	bool cmd, cmd_write, cmd_unit, abort_valid, abort_ready, cpl_valid, cpl_error;
	uint16_t cmd_cid, abort_cid, cpl_cid;
	uint64_t cmd_line, cmd_place;
	bool did, did_write, did_evicts, did_dirty;
	uint8_t did_what, did_way, did_window;
	uint16_t did_id, did_who;
	uint64_t did_flit, did_victim;
	uint32_t did_set[PINS_SET_WORDS];
};

struct rtl;

/* wave: a file for the waves, or NULL. NULL when it cannot be made. */
struct rtl *rtl_open(const char *wave);
void rtl_close(struct rtl *r);
void rtl_settle(struct rtl *r, const struct pins_in *in, struct pins_out *out);
void rtl_tick(struct rtl *r);

#ifdef __cplusplus
}
#endif

#endif

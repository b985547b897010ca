// SPDX-License-Identifier: Apache-2.0
// Between the C bench and the class that Verilator makes of rtl/device.sv: copies pins, no more.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "Vdevice.h"
#include "pins.h"
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

struct rtl {
	VerilatedContext context;
	Vdevice device{&context};
	uint64_t time = 0;
#if VM_TRACE
	VerilatedVcdC wave;
	bool waves = false;
#endif
};

extern "C" struct rtl *rtl_open(const char *wave)
{
	auto *r = new rtl;
#if VM_TRACE
	if (wave) {
		r->context.traceEverOn(true);
		r->device.trace(&r->wave, 99);
		r->wave.open(wave);
		r->waves = true;
	}
#else
	if (wave) {
		delete r;
		return nullptr;
	}
#endif
	return r;
}

extern "C" void rtl_close(struct rtl *r)
{
	r->device.final();
#if VM_COVERAGE
	if (const char *path = getenv("FPGA_COVERAGE"))
		r->context.coveragep()->write(path);
#endif
#if VM_TRACE
	if (r->waves)
		r->wave.close();
#endif
	delete r;
}

static void look(rtl *r)
{
	r->device.eval();
	r->time++;
#if VM_TRACE
	if (r->waves)
		r->wave.dump(r->time);
#endif
}

static void drive(Vdevice &d, const pins_in *in)
{
	d.rst = in->rst;
	d.bug = in->bug;
	d.ar_valid = in->ar_valid;
	d.ar_id = in->ar_id;
	d.ar_addr = in->ar_addr;
	d.aw_valid = in->aw_valid;
	d.aw_id = in->aw_id;
	d.aw_addr = in->aw_addr;
	d.w_valid = in->w_valid;
	d.w_poison = in->w_poison;
	if (in->w_valid)
		memcpy(d.w_data.m_storage, in->w_data, 64);
	d.r_ready = in->r_ready;
	d.b_ready = in->b_ready;
	d.reg_valid = in->reg_valid;
	d.reg_write = in->reg_write;
	d.reg_addr = in->reg_addr;
	d.reg_wdata = in->reg_wdata;
	d.reg_rready = in->reg_rready;
	d.dram_ready = in->dram_ready;
	d.mem_valid = in->mem_valid;
	d.mem_poison = in->mem_poison;
	if (in->mem_valid)
		memcpy(d.mem_data.m_storage, in->mem_data, 64);
	d.mmio_ready = in->mmio_ready;
	d.mmio_rvalid = in->mmio_rvalid;
	d.mmio_rdata = in->mmio_rdata;
	d.dma_valid = in->dma_valid;
	d.dma_write = in->dma_write;
	d.dma_addr = in->dma_addr;
	if (in->dma_valid)
		memcpy(d.dma_wdata.m_storage, in->dma_wdata, 16);
	d.dma_rready = in->dma_rready;
}

static void sense(Vdevice &d, pins_out *out)
{
	out->ar_ready = d.ar_ready;
	out->aw_ready = d.aw_ready;
	out->w_ready = d.w_ready;
	out->r_valid = d.r_valid;
	out->r_id = d.r_id;
	out->r_resp = d.r_resp;
	out->r_poison = d.r_poison;
	if (out->r_valid)
		memcpy(out->r_data, d.r_data.m_storage, 64);
	out->b_valid = d.b_valid;
	out->b_id = d.b_id;
	out->b_resp = d.b_resp;
	out->reg_ready = d.reg_ready;
	out->reg_rvalid = d.reg_rvalid;
	out->reg_error = d.reg_error;
	out->reg_rdata = d.reg_rdata;
	out->dram_valid = d.dram_valid;
	out->dram_write = d.dram_write;
	out->dram_wpoison = d.dram_wpoison;
	out->dram_flit = d.dram_flit;
	if (out->dram_valid)
		memcpy(out->dram_wdata, d.dram_wdata.m_storage, 64);
	out->mem_ready = d.mem_ready;
}

static void sense_drives(Vdevice &d, pins_out *out)
{
	out->mmio_valid = d.mmio_valid;
	out->mmio_write = d.mmio_write;
	out->mmio_drive = d.mmio_drive;
	out->mmio_addr = d.mmio_addr;
	out->mmio_wdata = d.mmio_wdata;
	out->mmio_rready = d.mmio_rready;
	out->dma_ready = d.dma_ready;
	out->dma_rvalid = d.dma_rvalid;
	out->dma_rerror = d.dma_rerror;
	if (out->dma_rvalid)
		memcpy(out->dma_rdata, d.dma_rdata.m_storage, 64);
	out->cmd = d.cmd;
	out->cmd_write = d.cmd_write;
	out->cmd_unit = d.cmd_unit;
	out->cmd_cid = d.cmd_cid;
	out->cmd_line = d.cmd_line;
	out->cmd_place = d.cmd_place;
	out->abort_valid = d.abort_valid;
	out->abort_ready = d.abort_ready;
	out->abort_cid = d.abort_cid;
	out->cpl_valid = d.cpl_valid;
	out->cpl_cid = d.cpl_cid;
	out->cpl_error = d.cpl_error;
}

static void sense_decision(Vdevice &d, pins_out *out)
{
	static_assert(sizeof(d.did_set) <= sizeof(out->did_set), "PINS_SET_WORDS is too small");
	out->did = d.did;
	if (!out->did)
		return;
	out->did_what = d.did_what;
	out->did_id = d.did_id;
	out->did_write = d.did_write;
	out->did_flit = d.did_flit;
	out->did_way = d.did_way;
	out->did_who = d.did_who;
	out->did_window = d.did_window;
	out->did_evicts = d.did_evicts;
	out->did_dirty = d.did_dirty;
	out->did_victim = d.did_victim;
	memcpy(out->did_set, &d.did_set, sizeof(d.did_set));
}

extern "C" void rtl_settle(struct rtl *r, const struct pins_in *in, struct pins_out *out)
{
	drive(r->device, in);
	r->device.clk = 0;
	look(r);
	sense(r->device, out);
	sense_drives(r->device, out);
	sense_decision(r->device, out);
}

extern "C" void rtl_tick(struct rtl *r)
{
	r->device.clk = 1;
	look(r);
}

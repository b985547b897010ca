/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door of NIXL: a backend, found as libplugin_TIER.so in NIXL_PLUGIN_DIR. Memory is copied to and
 * from named objects (tier_object.h): the metadata of an OBJ descriptor is the name, its address the
 * offset of the first byte. What one transfer writes to a name replaces the object, whole or not at
 * all. A transfer runs on a thread of its own and is polled; it is never left half way.
 *
 * Parameters of the backend: context ("nixl"), socket.
 */
#include <tier.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "backend/backend_engine.h"
#include "backend/backend_plugin.h"

namespace {

struct Registered : nixlBackendMD {
	explicit Registered(const std::string &name) : nixlBackendMD(true), name(name) {}
	std::string name; /* of an object; of memory empty */
};

struct Piece {
	char *at;
	size_t bytes;
	off_t offset;
};

struct Transfer : nixlBackendReqH {
	bool write = false;
	std::map<std::string, std::vector<Piece>> objects;
	std::future<nixl_status_t> end;
};

nixl_status_t status_of(int64_t rc)
{
	return rc >= 0 ? NIXL_SUCCESS : rc == -ENOENT ? NIXL_ERR_NOT_FOUND : NIXL_ERR_BACKEND;
}

bool move_all(bool write, int fd, const Piece &p)
{
	for (size_t done = 0; done < p.bytes;) {
		off_t offset = p.offset + static_cast<off_t>(done);
		ssize_t n = write ? pwrite(fd, p.at + done, p.bytes - done, offset) :
				    pread(fd, p.at + done, p.bytes - done, offset);

		if (n <= 0 && !(n < 0 && errno == EINTR))
			return false; /* the object is shorter, or there is no room for it */
		done += n > 0 ? static_cast<size_t>(n) : 0;
	}
	return true;
}

class Engine : public nixlBackendEngine {
    public:
	explicit Engine(const nixlBackendInitParams *p) : nixlBackendEngine(p)
	{
		struct tier_connect_options o = {};
		std::string socket;

		if (getInitParam("context", context) != NIXL_SUCCESS || context.empty())
			context = "nixl";
		o.size = sizeof(o);
		o.name = "nixl";
		if (getInitParam("socket", socket) == NIXL_SUCCESS && !socket.empty())
			o.socket = socket.c_str();
		initErr = tier_connect(&t, &o) != 0 ||
			  tier_object_context(t, context.c_str(), nullptr) != 0;
		if (initErr)
			NIXL_ERROR << "tier: " << tier_error_text();
	}
	~Engine() override { tier_close(t); }

	bool supportsRemote() const override { return false; }
	bool supportsLocal() const override { return true; }
	bool supportsNotif() const override { return false; }
	nixl_mem_list_t getSupportedMems() const override { return { DRAM_SEG, OBJ_SEG }; }

	nixl_status_t registerMem(const nixlBlobDesc &mem, const nixl_mem_t &kind,
				  nixlBackendMD *&out) override
	{
		if (kind != DRAM_SEG && kind != OBJ_SEG)
			return NIXL_ERR_NOT_SUPPORTED;
		if (kind == OBJ_SEG && (mem.metaInfo.empty() || mem.metaInfo.size() > 255))
			return NIXL_ERR_INVALID_PARAM;
		out = new Registered(kind == OBJ_SEG ? mem.metaInfo : "");
		return NIXL_SUCCESS;
	}
	nixl_status_t deregisterMem(nixlBackendMD *mem) override
	{
		delete mem;
		return NIXL_SUCCESS;
	}
	nixl_status_t connect(const std::string &) override { return NIXL_SUCCESS; }
	nixl_status_t disconnect(const std::string &) override { return NIXL_SUCCESS; }
	nixl_status_t unloadMD(nixlBackendMD *) override { return NIXL_SUCCESS; }
	nixl_status_t loadLocalMD(nixlBackendMD *in, nixlBackendMD *&out) override
	{
		out = in;
		return NIXL_SUCCESS;
	}

	nixl_status_t prepXfer(const nixl_xfer_op_t &op, const nixl_meta_dlist_t &local,
			       const nixl_meta_dlist_t &remote, const std::string &,
			       nixlBackendReqH *&handle,
			       const nixl_opt_b_args_t * = nullptr) const override
	{
		auto r = std::make_unique<Transfer>();

		if (local.getType() != DRAM_SEG || remote.getType() != OBJ_SEG ||
		    local.descCount() != remote.descCount())
			return NIXL_ERR_INVALID_PARAM;
		r->write = op == NIXL_WRITE;
		for (int i = 0; i < local.descCount(); i++) {
			auto *object = static_cast<Registered *>(remote[i].metadataP);

			if (local[i].len != remote[i].len)
				return NIXL_ERR_MISMATCH;
			r->objects[object->name].push_back(
				{ reinterpret_cast<char *>(local[i].addr), local[i].len,
				  static_cast<off_t>(remote[i].addr) });
		}
		handle = r.release();
		return NIXL_SUCCESS;
	}
	nixl_status_t postXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &,
			       const nixl_meta_dlist_t &, const std::string &,
			       nixlBackendReqH *&handle,
			       const nixl_opt_b_args_t * = nullptr) const override
	{
		auto *r = static_cast<Transfer *>(handle);

		r->end = std::async(std::launch::async, [this, r] { return run(*r); });
		return NIXL_IN_PROG;
	}
	nixl_status_t checkXfer(nixlBackendReqH *handle) const override
	{
		auto *r = static_cast<Transfer *>(handle);

		if (!r->end.valid())
			return NIXL_ERR_NOT_POSTED;
		if (r->end.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
			return NIXL_IN_PROG;
		return r->end.get();
	}
	nixl_status_t releaseReqH(nixlBackendReqH *handle) const override
	{
		delete handle; /* waits until no byte moves */
		return NIXL_SUCCESS;
	}
	nixl_status_t queryMem(const nixl_reg_dlist_t &descs,
			       std::vector<nixl_query_resp_t> &resp) const override
	{
		for (int i = 0; i < descs.descCount(); i++) {
			struct tier_object_info info;

			if (tier_object_stat(t, context.c_str(), descs[i].metaInfo.c_str(),
					     &info) == 0)
				resp.emplace_back(nixl_b_params_t{
					{ "size", std::to_string(info.size) } });
			else
				resp.emplace_back(std::nullopt);
		}
		return NIXL_SUCCESS;
	}

    private:
	tier *t = nullptr;
	std::string context;

	nixl_status_t run(const Transfer &r) const
	{
		for (const auto &[name, pieces] : r.objects) {
			nixl_status_t status = r.write ? put(name, pieces) : get(name, pieces);

			if (status != NIXL_SUCCESS)
				return status;
		}
		return NIXL_SUCCESS;
	}
	nixl_status_t put(const std::string &name, const std::vector<Piece> &pieces) const
	{
		tier_object *o;
		int rc = tier_object_create(t, context.c_str(), name.c_str(), nullptr, &o);

		if (rc)
			return status_of(rc);
		for (const Piece &p : pieces) {
			if (!move_all(true, tier_object_fd(o), p)) {
				tier_object_abort(o);
				return NIXL_ERR_BACKEND;
			}
		}
		return status_of(tier_object_commit(o));
	}
	nixl_status_t get(const std::string &name, const std::vector<Piece> &pieces) const
	{
		int fd = tier_object_open(t, context.c_str(), name.c_str(), 0);
		bool all = fd >= 0;

		if (fd < 0)
			return status_of(fd);
		for (const Piece &p : pieces)
			all = all && move_all(false, fd, p);
		close(fd);
		return all ? NIXL_SUCCESS : NIXL_ERR_MISMATCH;
	}
};

} // namespace

extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin *nixl_plugin_init()
{
	return nixlBackendPluginCreator<Engine>::create(
		NIXL_PLUGIN_API_VERSION, "TIER", tier_version(),
		{ { "context", "nixl" }, { "socket", "" } }, { DRAM_SEG, OBJ_SEG });
}

extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini()
{
}

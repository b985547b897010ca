// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions: slots, descriptors, faults. A descriptor is an open file on the region's inode with
 * rights of its own in private_data, so that one address space spans all mappings of all of them,
 * while each can lose its rights alone. The VFS sees to it that a reader's cannot be written.
 */
#include <linux/file.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/pseudo_fs.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"

#define FS_MAGIC 0x74696572

static LIST_HEAD(tm_regions);
static struct vfsmount *tm_mount;
static int tm_mounts;

static int tm_init_fs_context(struct fs_context *fc)
{
	return init_pseudo(fc, FS_MAGIC) ? 0 : -ENOMEM;
}

static struct file_system_type tm_fs = {
	.owner = THIS_MODULE,
	.name = "tier_mem",
	.init_fs_context = tm_init_fs_context,
	.kill_sb = kill_anon_super,
};

#if !TM_KERNEL_FROM(6, 3)
#define mnt_idmap user_namespace
#endif

/* Who may write a slot may not truncate the region, and with it unmap it for all. */
static int tm_setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attr)
{
	return -EPERM;
}

static const struct inode_operations tm_inode_ops = { .setattr = tm_setattr };

/* ---- taking away --------------------------------------------------------------------------- */

static bool is_chunk(const struct tm_chunk *chunk)
{
	return !IS_ERR_OR_NULL(chunk);
}

/* Faults that saw what was before have mapped it: what is unmapped now stays so. */
static void drain(const struct tm_chunk *chunk)
{
	folio_lock(chunk->folio);
	folio_unlock(chunk->folio);
}

static void unmap_slots(struct tm_region *r, loff_t first, loff_t count)
{
	unmap_mapping_range(r->inode->i_mapping, first << TM_SHIFT, count << TM_SHIFT, 1);
}

/*
 * Does somebody reach it beside us and page tables? A device, a pipe, a system call, a processor
 * that has not forgotten yet what another's munmap() took out of the table. The lock keeps faults
 * out, so mappings only get less: they are counted last.
 */
static bool is_held(const struct tm_chunk *chunk)
{
	int others, mapped = 0; /* 6.1 does not tell: its readers count as holders */

	folio_lock(chunk->folio);
	others = folio_ref_count(chunk->folio) - 1;
#if TM_KERNEL_FROM(6, 3)
	smp_rmb(); /* as said above */
	mapped = folio_mapcount(chunk->folio);
#endif
	folio_unlock(chunk->folio);
	return others > mapped;
}

/* To be called after a right was taken. Returns how many slots are held all the same. */
static u32 __unmap_rights(struct tm_region *r, u32 first, u32 count)
{
	u32 i, held = 0;

	for (i = first; i < first + count; i++)
		if (is_chunk(r->slot[i]))
			drain(r->slot[i]);
	unmap_slots(r, first, count);
	for (i = first; i < first + count; i++)
		held += is_chunk(r->slot[i]) && is_held(r->slot[i]);
	return held;
}

/* Empties slots; of a source alone if there is one. What lost memory is marked so. */
static void __empty(struct tm_region *r, const struct tier_mem_slots *s,
		    const struct tm_source *only, struct tier_mem_slots *out)
{
	struct tm_chunk *chunk, *next;
	LIST_HEAD(taken);
	u32 i;

	for (i = s->first; i < s->first + s->count; i++) {
		chunk = r->slot[i];
		if (!is_chunk(chunk) || (only && chunk->source != only)) {
			if (!only)
				WRITE_ONCE(r->slot[i], NULL);
			continue;
		}
		WRITE_ONCE(r->slot[i], only ? TM_LOST : NULL);
		list_add_tail(&chunk->link, &taken);
	}
	list_for_each_entry(chunk, &taken, link)
		drain(chunk);
	if (list_empty(&taken))
		return;
	unmap_slots(r, s->first, s->count);
	list_for_each_entry_safe(chunk, next, &taken, link) {
		list_del(&chunk->link);
		inode_sub_bytes(r->inode, TIER_MEM_CHUNK);
		__tm_chunk_give(chunk);
		out->done++;
		out->held += chunk->state == TM_HELD;
		if (only)
			tm_status.lost++;
		else
			tm_status.punches++;
	}
}

static void __empty_all(struct tm_region *r, const struct tm_source *only)
{
	const struct tier_mem_slots all = { .count = r->slots };
	struct tier_mem_slots out = { 0 };

	__empty(r, &all, only, &out);
}

void __tm_region_lose(const struct tm_source *source)
{
	struct tm_region *r;

	list_for_each_entry(r, &tm_regions, link)
		__empty_all(r, source);
}

void __tm_region_poisoned(const struct tm_chunk *chunk)
{
	if (!chunk->region)
		return;
	drain(chunk);
	unmap_slots(chunk->region, chunk->folio->index >> TM_ORDER, 1);
	tm_status.lost++;
}

/* ---- filling ------------------------------------------------------------------------------- */

static int __judge_fill(const struct tm_region *r, u32 i)
{
	if (r->dead)
		return -EIDRM;
	if (r->slot[i] == TM_LOST)
		return -EIO;
	return r->slot[i] ? -EEXIST : 0;
}

static void __install(struct tm_region *r, u32 i, struct tm_chunk *chunk)
{
	chunk->folio->index = (pgoff_t)i << TM_ORDER;
	chunk->region = r;
	chunk->suspect = false;
	inode_add_bytes(r->inode, TIER_MEM_CHUNK);
	tm_status.fills++;
	smp_store_release(&r->slot[i], chunk); /* the zeros before the chunk */
}

/* 0: the slot is full. */
static int fill_one(struct tm_region *r, u32 i)
{
	struct tm_chunk *chunk = NULL;
	int err;

	mutex_lock(&tm_lock);
	err = __judge_fill(r, i);
	if (!err) {
		chunk = __tm_chunk_take();
		err = chunk ? 0 : -ENOMEM;
	}
	mutex_unlock(&tm_lock);
	if (err)
		return err == -EEXIST ? 0 : err;
	tm_chunk_zero(chunk);
	mutex_lock(&tm_lock);
	err = __judge_fill(r, i);
	if (!err && chunk->source->leaving)
		err = -ENOMEM;
	if (err)
		__tm_chunk_give(chunk);
	else
		__install(r, i, chunk);
	mutex_unlock(&tm_lock);
	return err == -EEXIST ? 0 : err;
}

static int do_fill(struct tm_region *r, struct tier_mem_slots *s)
{
	int err = 0;

	for (s->done = 0; s->done < s->count && !err; s->done += !err)
		err = fatal_signal_pending(current) ? -EINTR : fill_one(r, s->first + s->done);
	return err;
}

/* ---- faults -------------------------------------------------------------------------------- */

static vm_fault_t map_slot(struct vm_fault *vmf, const struct tm_desc *d, u32 i)
{
	/* Pairs with the release in __install(). */
	struct tm_chunk *chunk = smp_load_acquire(&d->region->slot[i]);
	struct folio *folio;

	if (!is_chunk(chunk))
		return VM_FAULT_SIGBUS;
	folio = chunk->folio;
	folio_lock(folio);
	if (tm_is_revoked(d) || READ_ONCE(d->region->slot[i]) != chunk) {
		folio_unlock(folio);
		return VM_FAULT_SIGBUS;
	}
	if (READ_ONCE(chunk->poisoned)) {
		folio_unlock(folio);
		return VM_FAULT_HWPOISON;
	}
	folio_get(folio);
	vmf->page = folio_page(folio, vmf->pgoff & (TM_PAGES - 1));
	return VM_FAULT_LOCKED;
}

static vm_fault_t tm_fault(struct vm_fault *vmf)
{
	const struct tm_desc *d = vmf->vma->vm_file->private_data;
	pgoff_t i = vmf->pgoff >> TM_ORDER;
	vm_fault_t ret;
	int idx;

	if (i < d->first || i - d->first >= d->count || tm_is_revoked(d))
		return VM_FAULT_SIGBUS;
	if (d->role == TM_OWNER && !READ_ONCE(d->region->slot[i]) && fill_one(d->region, i))
		return VM_FAULT_SIGBUS;
	idx = srcu_read_lock(&tm_srcu);
	ret = map_slot(vmf, d, i);
	srcu_read_unlock(&tm_srcu, idx);
	return ret;
}

static const struct vm_operations_struct tm_vm_ops = {
	.fault = tm_fault,
};

int tm_mmap(struct file *file, struct vm_area_struct *vma)
{
	const struct tm_desc *d = file->private_data;
	unsigned long pages = (unsigned long)d->region->slots << TM_ORDER;

	if (tm_is_revoked(d))
		return -EIDRM;
	/* Not VM_SHARED: a mapping of a read-only descriptor has lost it. */
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EACCES;
	if (vma->vm_pgoff > pages || vma_pages(vma) > pages - vma->vm_pgoff)
		return -EINVAL;
#if TM_KERNEL_FROM(6, 3)
	vm_flags_mod(vma, VM_DONTEXPAND | VM_DONTDUMP, VM_MAYEXEC);
#else
	vma->vm_flags = (vma->vm_flags | VM_DONTEXPAND | VM_DONTDUMP) & ~VM_MAYEXEC;
#endif
	vma->vm_ops = &tm_vm_ops;
	return 0;
}

/* ---- descriptors --------------------------------------------------------------------------- */

static void region_free(struct kref *ref)
{
	struct tm_region *r = container_of(ref, struct tm_region, ref);

	mutex_lock(&tm_lock);
	__empty_all(r, NULL);
	list_del(&r->link);
	tm_status.regions--;
	mutex_unlock(&tm_lock);
	iput(r->inode);
	kvfree(r);
	simple_release_fs(&tm_mount, &tm_mounts);
}

static void __revoke_all(struct tm_region *r)
{
	struct tm_desc *d;

	r->dead = true;
	list_for_each_entry(d, &r->descs, link)
		WRITE_ONCE(d->revoked, true);
	__empty_all(r, NULL);
}

static int tm_release(struct inode *inode, struct file *file)
{
	struct tm_desc *d = file->private_data;
	struct tm_region *r = d->region;

	mutex_lock(&tm_lock);
	list_del(&d->link);
	if (d->role == TM_OWNER && !d->of && !READ_ONCE(r->left))
		__revoke_all(r);
	mutex_unlock(&tm_lock);
	if (d->of)
		fput(d->of);
	kfree(d);
	kref_put(&r->ref, region_free);
	return 0;
}

/* Where memory is, by slots: for lseek's SEEK_DATA and SEEK_HOLE. */
static loff_t tm_llseek(struct file *file, loff_t offset, int whence)
{
	const struct tm_desc *d = file->private_data;
	const struct tm_region *r = d->region;
	loff_t i, end = (loff_t)r->slots << TM_SHIFT;
	bool data = whence == SEEK_DATA;

	if (d->role != TM_OWNER || (whence != SEEK_DATA && whence != SEEK_HOLE))
		return -EINVAL;
	if (offset < 0 || offset >= end)
		return -ENXIO;
	for (i = offset >> TM_SHIFT; i < r->slots; i++)
		if (is_chunk(READ_ONCE(r->slot[i])) == data)
			return max(offset, i << TM_SHIFT);
	return whence == SEEK_HOLE ? end : -ENXIO;
}

static long tm_region_ioctl(struct file *file, unsigned int cmd, unsigned long arg);

static const struct file_operations tm_fops = {
	.owner = THIS_MODULE,
	.mmap = tm_mmap,
	.release = tm_release,
	.llseek = tm_llseek,
	.unlocked_ioctl = tm_region_ioctl,
	.get_unmapped_area = thp_get_unmapped_area,
};

/* A file with a copy of made, which is in no list yet. */
static struct file *open_desc(const struct tm_desc *made)
{
	struct tm_desc *d = kmemdup(made, sizeof(*made), GFP_KERNEL_ACCOUNT);
	struct inode *inode = made->region->inode;
	struct file *file;

	if (!d)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&d->link);
	__module_get(THIS_MODULE); /* the last fput() drops one, and nobody takes it */
	ihold(inode);
	file = alloc_file_pseudo(inode, tm_mount, d->region->label,
				 d->role == TM_READER ? O_RDONLY : O_RDWR, &tm_fops);
	if (IS_ERR(file)) {
		iput(inode);
		module_put(THIS_MODULE);
		kfree(d);
		return file;
	}
	file->private_data = d;
	kref_get(&d->region->ref);
	return file;
}

static bool __overlaps(const struct tm_desc *d, u32 first, u32 count)
{
	return d->role == TM_WRITER && !d->revoked && d->first < first + count &&
	       first < d->first + d->count;
}

static int __enlist(struct tm_desc *d)
{
	struct tm_desc *other;

	if (d->region->dead)
		return -EIDRM;
	if (d->role == TM_WRITER)
		list_for_each_entry(other, &d->region->descs, link)
			if (__overlaps(other, d->first, d->count))
				return -EBUSY;
	list_add(&d->link, &d->region->descs);
	return 0;
}

static int install_desc(const struct tm_desc *made)
{
	int err, fd = get_unused_fd_flags(O_CLOEXEC);
	struct file *file;

	if (fd < 0)
		return fd;
	file = open_desc(made);
	err = PTR_ERR_OR_ZERO(file);
	if (!err) {
		mutex_lock(&tm_lock);
		err = __enlist(file->private_data);
		mutex_unlock(&tm_lock);
		if (err)
			fput(file);
	}
	if (err)
		put_unused_fd(fd);
	else
		fd_install(fd, file);
	return err ? err : fd;
}

/* Some slots of a descriptor: mappings stay within, whatever remap_file_pages() asks for. */
struct file *tm_desc_part(struct file *file, const struct tier_mem_slots *slots)
{
	struct tm_desc made = *(const struct tm_desc *)file->private_data;
	struct file *part;

	made.of = file;
	made.first = slots->first;
	made.count = slots->count;
	part = open_desc(&made);
	if (!IS_ERR(part))
		get_file(file);
	return part;
}

/* ---- requests ------------------------------------------------------------------------------ */

static int do_punch(struct tm_region *r, struct tier_mem_slots *s)
{
	mutex_lock(&tm_lock);
	__empty(r, s, NULL, s);
	mutex_unlock(&tm_lock);
	return 0;
}

static int do_grant(struct tm_region *r, struct tier_mem_slots *s)
{
	const struct tm_desc made = {
		.region = r, .role = TM_WRITER, .first = s->first, .count = s->count,
	};

	return install_desc(&made);
}

static int do_commit(struct tm_region *r, struct tier_mem_slots *s)
{
	struct tm_desc *d;

	mutex_lock(&tm_lock);
	list_for_each_entry(d, &r->descs, link)
		if (__overlaps(d, s->first, s->count)) { /* all of it, not these slots alone */
			WRITE_ONCE(d->revoked, true);
			__unmap_rights(r, d->first, d->count);
		}
	s->done = __unmap_rights(r, s->first, s->count);
	tm_status.commits++;
	tm_status.busy += s->done != 0;
	mutex_unlock(&tm_lock);
	return s->done ? -EBUSY : 0;
}

static int do_share(struct tm_region *r, struct tier_mem_client *c)
{
	const struct tm_desc made = {
		.region = r, .role = TM_READER, .client = c->client, .count = r->slots,
	};

	return install_desc(&made);
}

/* What a revoked reader may still hold. Asked again, only what has been held all the time. */
static u32 __suspects(struct tm_region *r, bool fresh)
{
	u32 i, count = 0;

	for (i = 0; i < r->slots; i++) {
		struct tm_chunk *chunk = r->slot[i];

		if (!is_chunk(chunk))
			continue;
		chunk->suspect = (fresh || chunk->suspect) && is_held(chunk);
		count += chunk->suspect;
	}
	return count;
}

static int do_revoke(struct tm_region *r, struct tier_mem_client *c)
{
	struct tm_desc *d;

	mutex_lock(&tm_lock);
	list_for_each_entry(d, &r->descs, link) {
		if (d->role != TM_READER || d->client != c->client || d->revoked)
			continue;
		WRITE_ONCE(d->revoked, true);
		c->descriptors++;
	}
	if (c->descriptors)
		__unmap_rights(r, 0, r->slots);
	c->pinned = __suspects(r, c->descriptors);
	tm_status.revokes += c->descriptors;
	mutex_unlock(&tm_lock);
	return 0;
}

static int read_slots(const struct tm_region *r, const void __user *arg,
		      struct tier_mem_slots *s)
{
	if (copy_from_user(s, arg, sizeof(*s)))
		return -EFAULT;
	if (!s->count || s->first >= r->slots || s->count > r->slots - s->first || s->done ||
	    s->held)
		return -EINVAL;
	return 0;
}

static long slots_request(struct tm_region *r, void __user *arg,
			  int (*request)(struct tm_region *r, struct tier_mem_slots *s))
{
	struct tier_mem_slots s;
	long rc = read_slots(r, arg, &s);

	rc = rc ? rc : request(r, &s);
	/* A descriptor that was made stays: the sums are not worth losing it. */
	return rc != -EFAULT && copy_to_user(arg, &s, sizeof(s)) && rc <= 0 ? -EFAULT : rc;
}

static long client_request(struct tm_region *r, void __user *arg,
			   int (*request)(struct tm_region *r, struct tier_mem_client *c))
{
	struct tier_mem_client c;
	long rc;

	if (copy_from_user(&c, arg, sizeof(c)))
		return -EFAULT;
	rc = c.descriptors || c.pinned ? -EINVAL : request(r, &c);
	return copy_to_user(arg, &c, sizeof(c)) && rc <= 0 ? -EFAULT : rc;
}

static long do_dmabuf(struct file *file, const void __user *arg)
{
	const struct tm_desc *d = file->private_data;
	struct tier_mem_slots s;
	int err = read_slots(d->region, arg, &s);

	if (err)
		return err;
	if (READ_ONCE(d->revoked))
		return -EIDRM;
	if (s.first < d->first || s.first + s.count > d->first + d->count)
		return -EINVAL;
	return tm_dmabuf_export(file, &s);
}

static long tm_region_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	const struct tm_desc *d = file->private_data;
	void __user *at = (void __user *)arg;

	if (cmd == TIER_MEM_DMABUF)
		return do_dmabuf(file, at);
	if (d->role != TM_OWNER)
		return -ENOTTY;
	switch (cmd) {
	case TIER_MEM_FILL:
		return slots_request(d->region, at, do_fill);
	case TIER_MEM_PUNCH:
		return slots_request(d->region, at, do_punch);
	case TIER_MEM_GRANT:
		return slots_request(d->region, at, do_grant);
	case TIER_MEM_COMMIT:
		return slots_request(d->region, at, do_commit);
	case TIER_MEM_SHARE:
		return client_request(d->region, at, do_share);
	case TIER_MEM_REVOKE:
		return client_request(d->region, at, do_revoke);
	case TIER_MEM_LEAVE:
		WRITE_ONCE(d->region->left, true);
		return 0;
	}
	return -ENOTTY;
}

static struct tm_region *region_new(u32 slots)
{
	struct tm_region *r = kvzalloc(struct_size(r, slot, slots), GFP_KERNEL_ACCOUNT);
	int err;

	if (!r)
		return ERR_PTR(-ENOMEM);
	err = simple_pin_fs(&tm_fs, &tm_mount, &tm_mounts);
	if (err)
		goto free_region;
	r->inode = alloc_anon_inode(tm_mount->mnt_sb);
	if (IS_ERR(r->inode)) {
		err = PTR_ERR(r->inode);
		goto release_fs;
	}
	r->inode->i_op = &tm_inode_ops;
	r->inode->i_mode = S_IFREG | 0600;
	i_size_write(r->inode, (loff_t)slots << TM_SHIFT);
	INIT_LIST_HEAD(&r->descs);
	kref_init(&r->ref);
	r->slots = slots;
	return r;

release_fs:
	simple_release_fs(&tm_mount, &tm_mounts);
free_region:
	kvfree(r);
	return ERR_PTR(err);
}

int tm_region_create(const struct tier_mem_create *args)
{
	u64 slots = args->bytes >> TM_SHIFT;
	struct tm_desc made = { .role = TM_OWNER, .count = slots };
	int fd;

	if (!slots || slots > TIER_MEM_SLOTS_MAX || args->bytes % TIER_MEM_CHUNK ||
	    args->reserved || strnlen(args->label, sizeof(args->label)) == sizeof(args->label))
		return -EINVAL;
	made.region = region_new(slots);
	if (IS_ERR(made.region))
		return PTR_ERR(made.region);
	strscpy(made.region->label, args->label, sizeof(made.region->label));
	mutex_lock(&tm_lock);
	list_add(&made.region->link, &tm_regions);
	tm_status.regions++;
	mutex_unlock(&tm_lock);
	fd = install_desc(&made);
	kref_put(&made.region->ref, region_free);
	return fd;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Slots as a dma-buf, in the mode of the descriptor that asks. Its mmap() is the descriptor's: same
 * rights, same revocation. What a device has mapped stays until it lets go: the chunks count as
 * pinned (K4, K5), for 6.12 can tell no importer.
 */
#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "internal.h"

struct mapping {
	struct sg_table sgt;
	u32 count;
	struct folio *folio[];
};

static int __hold(const struct tm_desc *d, struct mapping *m)
{
	u32 i;

	if (tm_is_revoked(d))
		return -EIDRM;
	for (i = d->first; i < d->first + d->count; i++) {
		struct tm_chunk *chunk = d->region->slot[i];

		if (IS_ERR_OR_NULL(chunk) || chunk->poisoned)
			return chunk ? -EIO : -ENXIO;
		folio_get(chunk->folio);
		m->folio[m->count++] = chunk->folio;
	}
	return 0;
}

static void release(struct mapping *m)
{
	u32 i;

	for (i = 0; i < m->count; i++)
		folio_put(m->folio[i]);
	kvfree(m);
}

static int map_for(struct device *dev, struct mapping *m, enum dma_data_direction dir)
{
	struct scatterlist *sg;
	int i, err = sg_alloc_table(&m->sgt, m->count, GFP_KERNEL);

	if (err)
		return err;
	for_each_sgtable_sg(&m->sgt, sg, i)
		sg_set_page(sg, folio_page(m->folio[i], 0), TIER_MEM_CHUNK, 0);
	err = dma_map_sgtable(dev, &m->sgt, dir, 0);
	if (err)
		sg_free_table(&m->sgt);
	return err;
}

static struct sg_table *tm_map(struct dma_buf_attachment *attachment, enum dma_data_direction dir)
{
	const struct file *part = attachment->dmabuf->priv;
	const struct tm_desc *d = part->private_data;
	struct mapping *m;
	int err;

	if (!(part->f_mode & FMODE_WRITE) && dir != DMA_TO_DEVICE)
		return ERR_PTR(-EACCES);
	m = kvzalloc(struct_size(m, folio, d->count), GFP_KERNEL);
	if (!m)
		return ERR_PTR(-ENOMEM);
	mutex_lock(&tm_lock);
	err = __hold(d, m);
	mutex_unlock(&tm_lock);
	if (!err)
		err = map_for(attachment->dev, m, dir);
	if (err) {
		release(m);
		return ERR_PTR(err);
	}
	return &m->sgt;
}

static void tm_unmap(struct dma_buf_attachment *attachment, struct sg_table *sgt,
		     enum dma_data_direction dir)
{
	dma_unmap_sgtable(attachment->dev, sgt, dir, 0);
	sg_free_table(sgt);
	release(container_of(sgt, struct mapping, sgt));
}

static int tm_buf_mmap(struct dma_buf *buf, struct vm_area_struct *vma)
{
	struct file *part = buf->priv;
	const struct tm_desc *d = part->private_data;

	vma->vm_pgoff += (unsigned long)d->first << TM_ORDER;
	vma_set_file(vma, part);
	return tm_mmap(part, vma);
}

static void tm_buf_release(struct dma_buf *buf)
{
	fput(buf->priv);
}

static const struct dma_buf_ops tm_buf_ops = {
	.map_dma_buf = tm_map,
	.unmap_dma_buf = tm_unmap,
	.mmap = tm_buf_mmap,
	.release = tm_buf_release,
};

int tm_dmabuf_export(struct file *file, const struct tier_mem_slots *slots)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct file *part = tm_desc_part(file, slots);
	struct dma_buf *buf;
	int fd;

	if (IS_ERR(part))
		return PTR_ERR(part);
	info.ops = &tm_buf_ops;
	info.size = (size_t)slots->count << TM_SHIFT;
	info.flags = file->f_mode & FMODE_WRITE ? O_RDWR : O_RDONLY;
	info.priv = part;
	buf = dma_buf_export(&info);
	if (IS_ERR(buf)) {
		fput(part);
		return PTR_ERR(buf);
	}
	fd = dma_buf_fd(buf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(buf);
	return fd;
}

MODULE_IMPORT_NS(DMA_BUF);

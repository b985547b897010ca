// SPDX-License-Identifier: GPL-2.0-only
/*
 * tier_mem: memory that belongs to a service alone, in slots that clients map once, with rights
 * that can be taken from one of them. This file has the device, /dev/tier_mem, through which
 * regions are made, and the module's beginning and end. Policy is user space's.
 */
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "internal.h"

DEFINE_MUTEX(tm_lock); /* pool, slots, descriptors: internal.h */
DEFINE_SRCU(tm_srcu);

static long tell_status(void __user *arg)
{
	struct tier_mem_status status;

	mutex_lock(&tm_lock);
	status = tm_status;
	mutex_unlock(&tm_lock);
	return copy_to_user(arg, &status, sizeof(status)) ? -EFAULT : 0;
}

static long tm_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct tier_mem_create create;

	switch (cmd) {
	case TIER_MEM_STATUS:
		return tell_status((void __user *)arg);
	case TIER_MEM_CREATE:
		if (!(file->f_mode & FMODE_WRITE))
			return -EBADF;
		if (copy_from_user(&create, (void __user *)arg, sizeof(create)))
			return -EFAULT;
		return tm_region_create(&create);
	}
	return -ENOTTY;
}

static const struct file_operations tm_device_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = tm_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice tm_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "tier_mem",
	.mode = 0600,
	.fops = &tm_device_fops,
};

static int __init tm_init(void)
{
	int err = tm_sources_init();

	if (err)
		return err;
	err = misc_register(&tm_device);
	if (err)
		tm_sources_exit();
	return err;
}

static void __exit tm_exit(void)
{
	misc_deregister(&tm_device);
	tm_sources_exit();
	tm_pool_exit();
}

module_init(tm_init);
module_exit(tm_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("CXL memory in slots, with rights that can be taken back");
MODULE_VERSION("1");

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the memory behind a volume is taken for: a tree of files stands in for /sys, laid out as kernels show NVDIMMs, CXL devices,
 * virtio-pmem, memory of the command line and /dev/dax; and the word of the administrator.
 */
#include "control/memory.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "harness.h"

static char root[] = "/tmp/test_memory.XXXXXX";

#define BUS_NFIT   "devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0"
#define BUS_CXL	   "devices/platform/ACPI0017:00/root0/nvdimm-bridge0/ndbus1"
#define BUS_VIRT   "devices/pci0000:00/0000:00:06.0/virtio5/ndbus2"
#define BUS_E820   "devices/platform/e820_pmem/ndbus3"
#define PORT	   "devices/pci0000:40/0000:40:00.0"
#define OTHER_PORT "devices/pci0000:50/0000:50:00.0"
#define NVDIMM	   PORT "/0000:41:00.0/mem0/pmem0"

/* All directories above the last slash of root/path. */
static void directories(char *path)
{
	for (char *at = strchr(path + sizeof(root), '/'); at; at = strchr(at + 1, '/')) {
		*at = 0;
		CHECK(mkdir(path, 0755) == 0 || errno == EEXIST);
		*at = '/';
	}
}

static void put_bytes(const char *name, const void *bytes, size_t n)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	directories(path);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
	CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
	close(fd);
}

/* A file of sysfs: `text` and a newline. */
__attribute__((format(printf, 2, 3))) static void put(const char *text, const char *fmt, ...)
{
	char name[512], line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	put_bytes(name, line, (size_t)snprintf(line, sizeof(line), "%s\n", text));
}

static void take(const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	CHECK_EQ(unlink(path), 0);
}

/* sys/NAME leads to sys/TARGET; the tree may be anywhere. */
static void lead(const char *name, const char *target)
{
	char path[PATH_MAX], to[PATH_MAX];

	snprintf(path, sizeof(path), "%s/sys/%s", root, name);
	snprintf(to, sizeof(to), "%s/sys/%s", root, target);
	directories(path);
	CHECK_EQ(symlink(to, path), 0);
}

static void region(const char *bus, const char *provider, unsigned n)
{
	char link[64], path[256];

	put(provider, "sys/%s/provider", bus);
	put("nd_pmem", "sys/%s/region%u/devtype", bus, n);
	put("100663296", "sys/%s/region%u/size", bus, n);
	put("1", "sys/%s/region%u/namespace%u.0/block/pmem%u/queue/dax", bus, n, n, n);
	snprintf(link, sizeof(link), "bus/nd/devices/region%u", n);
	snprintf(path, sizeof(path), "%s/region%u", bus, n);
	lead(link, path);
	snprintf(link, sizeof(link), "dev/block/259:%u", n);
	snprintf(path, sizeof(path), "%s/region%u/namespace%u.0/block/pmem%u", bus, n, n, n);
	lead(link, path);
}

/* Extended capabilities as of a real device: one of another kind, a DVSEC of CXL, and the one for the global persistent flush. */
static void config_space(const char *name, uint32_t dvsec)
{
	uint32_t config[1024] = {[0x100 / 4] = 0x10c10003, [0x10c / 4] = 0x14410023, 0x03811e98, 0x001e0000};

	config[0x144 / 4] = 0x19010023;
	config[0x148 / 4] = 0x01001e98;
	config[0x14c / 4] = 0x06030000 | dvsec;
	config[0x190 / 4] = 0x0001002e;
	put_bytes(name, config, sizeof(config));
}

static void build(void)
{
	region(BUS_NFIT, "ACPI.NFIT", 0);
	put("nmem0,0,100663296,0", "sys/" BUS_NFIT "/region0/mapping0");
	put("nfit_test", "sys/" BUS_NFIT "/nmem0/nfit/family");
	put("smart_notify", "sys/" BUS_NFIT "/nmem0/nfit/flags");
	lead("bus/nd/devices/nmem0", BUS_NFIT "/nmem0");
	region(BUS_CXL, "CXL", 1);
	put("memory_controller", "sys/" BUS_CXL "/region1/persistence_domain"); /* as kernels say of every CXL region */
	put("nmem1,0,268435456,0", "sys/" BUS_CXL "/region1/mapping0");
	put("pmem0", "sys/" BUS_CXL "/nmem1/cxl/provider");
	lead("bus/nd/devices/nmem1", BUS_CXL "/nmem1");
	put("cxl_nvdimm", "sys/" NVDIMM "/devtype");
	lead("bus/cxl/devices/pmem0", NVDIMM);
	config_space("sys/" PORT "/0000:41:00.0/config", 5);
	config_space("sys/" PORT "/config", 4);
	region(BUS_VIRT, "virtio-pmem", 2);
	region(BUS_E820, "e820", 3);
	put("512", "sys/devices/platform/hmem.0/dax4.0/size");
	lead("bus/dax/devices/dax4.0", "devices/platform/hmem.0/dax4.0");
	put("1024", "sys/devices/platform/ACPI0017:00/root0/decoder0.1/region9/dax_region9/dax9.0/size");
	lead("bus/dax/devices/dax9.0", "devices/platform/ACPI0017:00/root0/decoder0.1/region9/dax_region9/dax9.0");
	put("", "sys/bus/dax/drivers/device_dax/uevent");
	lead("devices/platform/hmem.0/dax4.0/driver", "bus/dax/drivers/device_dax");
	put("", "sys/bus/dax/drivers/kmem/uevent");
	lead("devices/platform/ACPI0017:00/root0/decoder0.1/region9/dax_region9/dax9.0/driver", "bus/dax/drivers/kmem");
	put("1", "sys/" BUS_NFIT "/region0/dax0.0/dax0.0/size");
	lead("bus/dax/devices/dax0.0", BUS_NFIT "/region0/dax0.0/dax0.0");
	put("quiet", "proc/cmdline");
}

static enum sfs_memory of(unsigned minor, enum sfs_platform platform)
{
	const struct sfs_machine m = {root, platform};

	return sfs_memory_of_device(&m, makedev(259, minor));
}

/* What the platform says, what the administrator says, and that an empty energy store outdoes both. */
static void test_nvdimm(void)
{
	static const struct {
		const char *domain;
		enum sfs_memory is, adr, eadr;
	} cases[] = {
		{NULL, SFS_MEMORY_UNSTATED, SFS_MEMORY_ADR, SFS_MEMORY_EADR},
		{"unheard_of", SFS_MEMORY_UNSTATED, SFS_MEMORY_ADR, SFS_MEMORY_EADR},
		{"memory_controller", SFS_MEMORY_ADR, SFS_MEMORY_ADR, SFS_MEMORY_EADR},
		{"cpu_cache", SFS_MEMORY_EADR, SFS_MEMORY_EADR, SFS_MEMORY_EADR},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (cases[i].domain)
			put(cases[i].domain, "sys/" BUS_NFIT "/region0/persistence_domain");
		CHECK_EQ(of(0, SFS_PLATFORM_AUTO), cases[i].is);
		CHECK_EQ(of(0, SFS_PLATFORM_ADR), cases[i].adr);
		CHECK_EQ(of(0, SFS_PLATFORM_EADR), cases[i].eadr);
	}
	put("not_armed smart_notify", "sys/" BUS_NFIT "/nmem0/nfit/flags");
	CHECK_EQ(of(0, SFS_PLATFORM_AUTO), SFS_MEMORY_VOLATILE);
	CHECK_EQ(of(0, SFS_PLATFORM_EADR), SFS_MEMORY_VOLATILE);
	put("", "sys/" BUS_NFIT "/nmem0/nfit/flags");
	put("nd_volatile", "sys/" BUS_NFIT "/region0/devtype");
	CHECK_EQ(of(0, SFS_PLATFORM_EADR), SFS_MEMORY_VOLATILE);
	put("nd_pmem", "sys/" BUS_NFIT "/region0/devtype");
	put("memory_controller", "sys/" BUS_NFIT "/region0/persistence_domain");
}

/* Not the kernel's constant: the device and its port decide. */
static void test_cxl(void)
{
	CHECK_EQ(of(1, SFS_PLATFORM_AUTO), SFS_MEMORY_GPF);
	CHECK_EQ(of(1, SFS_PLATFORM_ADR), SFS_MEMORY_GPF);
	CHECK_EQ(of(1, SFS_PLATFORM_EADR), SFS_MEMORY_EADR);
	config_space("sys/" PORT "/config", 5);
	CHECK_EQ(of(1, SFS_PLATFORM_AUTO), SFS_MEMORY_UNSTATED);
	CHECK_EQ(of(1, SFS_PLATFORM_ADR), SFS_MEMORY_ADR);
	config_space("sys/" PORT "/config", 4);
	config_space("sys/" PORT "/0000:41:00.0/config", 8);
	CHECK_EQ(of(1, SFS_PLATFORM_AUTO), SFS_MEMORY_UNSTATED);
	put("short", "sys/" PORT "/0000:41:00.0/config"); /* what others than root may read */
	CHECK_EQ(of(1, SFS_PLATFORM_AUTO), SFS_MEMORY_UNSTATED);
	config_space("sys/" PORT "/0000:41:00.0/config", 5);
	put("../../etc", "sys/" BUS_CXL "/nmem1/cxl/provider");
	CHECK_EQ(of(1, SFS_PLATFORM_AUTO), SFS_MEMORY_UNSTATED);
	put("pmem0", "sys/" BUS_CXL "/nmem1/cxl/provider");
}

/* Kernel 6.1 has no cxl/provider: the word is that of all persistent CXL devices together. */
static void test_cxl_unnamed(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/sys/" BUS_CXL "/nmem1/cxl/provider", root);
	CHECK_EQ(unlink(path), 0);
	put("", "sys/bus/cxl/devices/pmem_region0"); /* no device */
	config_space("sys/" PORT "/0000:41:00.0/config", 8);
	CHECK_EQ(of(1, SFS_PLATFORM_AUTO), SFS_MEMORY_UNSTATED);
	config_space("sys/" PORT "/0000:41:00.0/config", 5);
	CHECK_EQ(of(1, SFS_PLATFORM_AUTO), SFS_MEMORY_GPF);
	config_space("sys/" OTHER_PORT "/0000:51:00.0/config", 8);
	config_space("sys/" OTHER_PORT "/config", 4);
	put("cxl_nvdimm", "sys/" OTHER_PORT "/0000:51:00.0/mem1/pmem1/devtype");
	lead("bus/cxl/devices/pmem1", OTHER_PORT "/0000:51:00.0/mem1/pmem1");
	CHECK_EQ(of(1, SFS_PLATFORM_AUTO), SFS_MEMORY_UNSTATED);
	config_space("sys/" OTHER_PORT "/0000:51:00.0/config", 5);
	CHECK_EQ(of(1, SFS_PLATFORM_AUTO), SFS_MEMORY_GPF);
	put("pmem0", "sys/" BUS_CXL "/nmem1/cxl/provider");
}

static void test_others(void)
{
	CHECK_EQ(of(2, SFS_PLATFORM_EADR), SFS_MEMORY_VIRTIO);
	CHECK_EQ(of(3, SFS_PLATFORM_AUTO), SFS_MEMORY_UNSTATED); /* NVDIMMs of before NFIT */
	CHECK_EQ(of(3, SFS_PLATFORM_ADR), SFS_MEMORY_ADR);
	put("quiet memmap=192M!1G panic=-1", "proc/cmdline");
	CHECK_EQ(of(3, SFS_PLATFORM_EADR), SFS_MEMORY_VOLATILE);
	put("memmap=4G$8G", "proc/cmdline"); /* reserved, not persistent */
	CHECK_EQ(of(3, SFS_PLATFORM_AUTO), SFS_MEMORY_UNSTATED);
	put("memmap=192M!1G", "proc/cmdline");
	CHECK_EQ(of(77, SFS_PLATFORM_EADR), SFS_MEMORY_EMULATED); /* there is none */
}

/* A logical volume is what the least of its parts is, also through one more, and a disk is none. */
static void test_stacked(void)
{
	put("1", "sys/devices/virtual/block/dm-0/queue/dax");
	lead("dev/block/259:100", "devices/virtual/block/dm-0");
	lead("devices/virtual/block/dm-0/slaves/pmem1", BUS_CXL "/region1/namespace1.0/block/pmem1");
	CHECK_EQ(of(100, SFS_PLATFORM_AUTO), SFS_MEMORY_GPF);
	lead("devices/virtual/block/dm-0/slaves/pmem0", BUS_NFIT "/region0/namespace0.0/block/pmem0");
	CHECK_EQ(of(100, SFS_PLATFORM_AUTO), SFS_MEMORY_GPF);
	lead("devices/virtual/block/dm-0/slaves/pmem3", BUS_E820 "/region3/namespace3.0/block/pmem3");
	CHECK_EQ(of(100, SFS_PLATFORM_AUTO), SFS_MEMORY_VOLATILE);
	put("1", "sys/devices/virtual/block/dm-1/queue/dax");
	lead("dev/block/259:101", "devices/virtual/block/dm-1");
	lead("devices/virtual/block/dm-1/slaves/dm-0", "devices/virtual/block/dm-0");
	CHECK_EQ(of(101, SFS_PLATFORM_AUTO), SFS_MEMORY_VOLATILE);
	put("1", "sys/devices/pci0000:00/regional/block/sda/sda1/partition");
	lead("dev/block/259:102", "devices/pci0000:00/regional/block/sda/sda1");
	CHECK_EQ(of(102, SFS_PLATFORM_EADR), SFS_MEMORY_EMULATED);
	put("1", "sys/" BUS_NFIT "/region0/namespace0.0/block/pmem0/pmem0p1/partition");
	lead("dev/block/259:103", BUS_NFIT "/region0/namespace0.0/block/pmem0/pmem0p1");
	CHECK_EQ(of(103, SFS_PLATFORM_AUTO), SFS_MEMORY_ADR);
}

static void test_list(void)
{
	static const struct {
		const char *name, *provider, *word;
		uint64_t bytes;
	} want[] = {
		{"dax4.0", "hmem", "volatile", 512},
		{"dax9.0", "CXL", "volatile", 1024},
		{"region0", "ACPI.NFIT", "adr", 100663296},
		{"region1", "CXL", "gpf", 100663296},
		{"region2", "virtio-pmem", "virtio", 100663296},
		{"region3", "e820", "volatile", 100663296},
	};
	const struct sfs_machine m = {root, SFS_PLATFORM_AUTO};
	struct sfs_memory_range *v;
	size_t n;

	CHECK_EQ(sfs_memory_list(&m, &v, &n), 0);
	CHECK_EQ(n, sizeof(want) / sizeof(want[0]));
	for (size_t i = 0; i < n; i++) {
		if (strcmp(v[i].name, want[i].name) || strcmp(v[i].provider, want[i].provider) ||
		    strcmp(sfs_memory_word(v[i].memory), want[i].word))
			FAIL("range %zu is %s of %s, %s; expected %s, %s, %s", i, v[i].name, v[i].provider,
			     sfs_memory_word(v[i].memory), want[i].name, want[i].provider, want[i].word);
		CHECK_EQ(v[i].bytes, want[i].bytes);
		CHECK(v[i].why[0]);
	}
	CHECK(strcmp(v[0].why, "volatile memory behind /dev/dax") == 0);
	CHECK(strcmp(v[1].why, "volatile memory that the kernel uses as main memory") == 0);
	free(v);
	put("nd_blk", "sys/" BUS_VIRT "/region2/devtype");
	take("sys/bus/dax/devices/dax4.0");
	CHECK_EQ(sfs_memory_list(&m, &v, &n), 0);
	CHECK_EQ(n, 4);
	free(v);
}

static void test_words(void)
{
	enum sfs_platform p;
	struct sfs_machine m;
	struct sfs_why why = {0};

	CHECK_EQ(sfs_platform_parse("eadr", &p), 0);
	CHECK_EQ(p, SFS_PLATFORM_EADR);
	CHECK_EQ(sfs_platform_parse("ADR", &p), -EINVAL);
	setenv("SPLITFS_PLATFORM", "adr", 1);
	CHECK_EQ(sfs_machine_here(&m, &why), 0);
	CHECK_EQ(m.platform, SFS_PLATFORM_ADR);
	setenv("SPLITFS_PLATFORM", "maybe", 1);
	CHECK_EQ(sfs_machine_here(&m, &why), -EINVAL);
	CHECK(strstr(why.text, "'maybe'; set it to auto, adr or eadr"));
	setenv("SPLITFS_PLATFORM", "", 1);
	CHECK_EQ(sfs_machine_here(&m, &why), 0);
	CHECK_EQ(m.platform, SFS_PLATFORM_AUTO);
	CHECK(sfs_memory_durable(SFS_MEMORY_GPF) && sfs_memory_durable(SFS_MEMORY_EADR));
	CHECK(!sfs_memory_durable(SFS_MEMORY_UNSTATED) && !sfs_memory_durable(SFS_MEMORY_VIRTIO));
}

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
	(void)st, (void)type, (void)where;
	return remove(path);
}

int main(void)
{
	const struct sfs_machine nothing = {"/nonexistent", SFS_PLATFORM_EADR};
	struct sfs_memory_range *v;
	size_t n;

	CHECK(mkdtemp(root));
	CHECK_EQ(sfs_memory_list(&nothing, &v, &n), 0);
	CHECK_EQ(n, 0);
	build();
	test_nvdimm();
	test_cxl();
	test_cxl_unnamed();
	test_others();
	test_stacked();
	test_list();
	test_words();
	CHECK_EQ(nftw(root, unlink_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	return 0;
}

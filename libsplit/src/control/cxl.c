/* SPDX-License-Identifier: Apache-2.0 */
#include "control/cxl.h"

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* PCI Express: extended capabilities are a list of headers; of those that vendors define (DVSEC), CXL has some. */
#define CONFIG_BYTES	 4096u
#define EXTENDED_FIRST	 0x100u
#define CAPABILITY_MAX	 64 /* a list that has more is a circle */
#define CAPABILITY_DVSEC 0x23u
#define VENDOR_CXL	 0x1e98u
#define DVSEC_GPF_PORT	 4u
#define DVSEC_GPF_DEVICE 5u

static uint32_t dword(const uint8_t *config, uint32_t at)
{
	return (uint32_t)config[at] | (uint32_t)config[at + 1] << 8 | (uint32_t)config[at + 2] << 16 |
	       (uint32_t)config[at + 3] << 24;
}

static bool has_dvsec(const uint8_t *config, uint32_t size, uint32_t id)
{
	uint32_t at = EXTENDED_FIRST;

	for (int i = 0; i < CAPABILITY_MAX && at >= EXTENDED_FIRST && at + 12 <= size; i++) {
		const uint32_t header = dword(config, at);

		if ((header & 0xffff) == CAPABILITY_DVSEC && (dword(config, at + 4) & 0xffff) == VENDOR_CXL &&
		    (dword(config, at + 8) & 0xffff) == id)
			return true;
		at = header >> 20 & 0xffc;
	}
	return false;
}

static bool pci_has(const char *nvdimm, const char *up, uint32_t id)
{
	uint8_t config[CONFIG_BYTES];
	char path[PATH_MAX];
	ssize_t got = -1;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s/config", nvdimm, up) >= (int)sizeof(path))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		got = read(fd, config, sizeof(config));
		close(fd);
	}
	return got > 0 && has_dvsec(config, (uint32_t)got, id);
}

bool sfs_cxl_gpf(const char *nvdimm)
{
	/* PORT/DEVICE/memN/pmemN */
	return pci_has(nvdimm, "../..", DVSEC_GPF_DEVICE) && pci_has(nvdimm, "../../..", DVSEC_GPF_PORT);
}

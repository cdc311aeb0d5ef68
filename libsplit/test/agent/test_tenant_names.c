/* SPDX-License-Identifier: Apache-2.0 */
/* Whose a process is by the path of its cgroup, and how much of anything one tenant may have. */
#include "played.h"
#include "agent/internal.h"

static void expect_name(const char *cgroups, const char *own, const char *want)
{
	char name[TENANT_NAME];

	tenant_name(cgroups, own, 7, name);
	if (strcmp(name, want) != 0)
		FAIL("%s is tenant '%s', expected '%s'", cgroups, name, want);
}

int main(void)
{
#define POD  "kubepods-burstable-pod1f2e3d4c_0a1b_4c2d_8e3f_001122334455.slice"
#define POD2 "pod1f2e3d4c-0a1b-4c2d-8e3f-001122334456"
#define ID   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	expect_name("0::/kubepods.slice/kubepods-burstable.slice/" POD "/cri-containerd-" ID ".scope\n", "", POD);
	expect_name("0::/../../" POD "/cri-containerd-" ID ".scope\n", "", POD);
	expect_name("4:memory:/kubepods/burstable/" POD2 "/" ID "\n1:name=systemd:/x\n", "", POD2);
	/* A node that is a container itself. */
	expect_name("0::/system.slice/docker-" ID ".scope/kubelet.slice/" POD "/cri-containerd-" ID ".scope\n", POD2, POD);
	/* What a pod has made below its own cgroup changes nothing. */
	expect_name("0::/kubepods.slice/" POD "/cri-containerd-" ID ".scope/" POD2 "\n", "", POD);
	expect_name("0::/kubepods.slice/kubepods-pod0123456789abcdef0123456789abcdef.slice/x\n", "",
		    "kubepods-pod0123456789abcdef0123456789abcdef.slice"); /* a static pod */
	expect_name("0::/system.slice/docker-" ID ".scope\n", "", "docker-" ID ".scope");
	expect_name("0::/system.slice/docker-" ID ".scope/a\n", "docker-" ID ".scope", "user 7");
	expect_name("0::/user.slice/user-7.slice/session-1.scope\n", "", "user 7");
	expect_name("0::/podracer/tripod-abc\n", "", "user 7");
	expect_name("", "", "user 7");
	/* One may have all but what it leaves free; another one comes in always. */
	CHECK(tenant_may(0, 0, 4, 1) && tenant_may(1, 1, 4, 1) && !tenant_may(2, 2, 4, 1) && tenant_may(0, 2, 4, 1));
	CHECK(!tenant_may(1, 3, 4, 1) && tenant_may(0, 3, 4, 1) && !tenant_may(0, 4, 4, 1));
	return 0;
}

# Debian packages: `make deb` builds them from what is committed into build/deb, `make deb-test`
# installs, serves, upgrades and purges them in a clean Debian 12 root that it makes.
# SPDX-License-Identifier: Apache-2.0

DEB := $(O)/deb
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)

.PHONY: setup-deb deb deb-test
setup-deb: setup ##   install what make deb and make deb-test need (debhelper, lintian, debootstrap)
	@O=$(O) .ci/setup debhelper lintian dpkg-dev debootstrap dh-dkms \
		dh-python python3-cffi python3-setuptools

deb: setup-deb ##         Debian packages of what is committed, into build/deb
	@.ci/deb/build $(DEB) $(VERSION)

deb-test: deb ##    try the packages in a clean Debian 12 root (needs root)
	@.ci/deb/test $(DEB)

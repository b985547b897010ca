# Debian packages: `make deb` builds them from what is committed into build/deb, `make deb-test`
# installs, serves, upgrades and purges them in a clean Debian 12 root that it makes, and `make
# deb-same` builds them twice.
# SPDX-License-Identifier: Apache-2.0

DEB := $(O)/deb
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)

.PHONY: setup-deb deb deb-same deb-test
setup-deb: setup ##   install what make deb and make deb-test need (debhelper, lintian, debootstrap)
	@O=$(O) .ci/setup debhelper lintian dpkg-dev debootstrap dh-dkms \
		dh-python python3-cffi python3-setuptools

deb: setup-deb ##         Debian packages of what is committed, into build/deb
	@.ci/deb/build $(DEB) $(VERSION)

deb-test: deb ##    try the packages in a clean Debian 12 root (needs root)
	@.ci/deb/test $(DEB)

# The second time elsewhere, in another time zone, with another umask, without a compiler's cache,
# which would answer with what the first time made.
deb-same: deb ##    build the packages again in another folder and compare the bytes
	@umask 027; CCACHE_DISABLE=1 TZ=Pacific/Apia .ci/deb/build $(DEB)/built-once-more $(VERSION)
	@cd $(DEB) && for deb in *_$(VERSION)_*.deb; do \
		cmp "$$deb" "built-once-more/$$deb" || exit 1; done
	@echo 'deb-same: the same bytes'

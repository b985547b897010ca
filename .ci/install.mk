# install and uninstall from one list, so that the second removes exactly what the first put
# there. Each entry is mode:source:destination; links are name:target. Honours DESTDIR and PREFIX.
# SPDX-License-Identifier: Apache-2.0

BINDIR      ?= $(PREFIX)/bin
LIBDIR      ?= $(PREFIX)/lib
INCLUDEDIR  ?= $(PREFIX)/include
MANDIR      ?= $(PREFIX)/share/man
DOCDIR      ?= $(PREFIX)/share/doc/tier
UNITDIR     ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
BASHCOMPDIR ?= $(PREFIX)/share/bash-completion/completions

P := $(O)/plain
# tierbench stays in the build: it measures against the source's own daemon and trace.
MAN_PAGES := $(filter-out %/tierbench.1,$(wildcard docs/man/*.[1-8]))

INSTALL_LIST := \
	$(if $(SRC_tierd),755:$P/tierd:$(BINDIR)/tierd) \
	755:$P/tierd-net:$(BINDIR)/tierd-net \
	$(if $(SRC_tierctl),755:$P/tierctl:$(BINDIR)/tierctl) \
	$(if $(MAP_libtier),755:$P/libtier.so.$(SOMAJOR):$(LIBDIR)/libtier.so.$(VERSION)) \
	755:$P/tier:$(BINDIR)/tier \
	755:$P/libtier-preload.so:$(PREFIX)/lib/tier/libtier-preload.so \
	$(foreach p,$(notdir $(wildcard libtier/shim/profiles/*)),\
		644:libtier/shim/profiles/$p:$(PREFIX)/share/tier/profiles/$p) \
	755:$P/libtier_llama.so.$(SOMAJOR):$(LIBDIR)/libtier_llama.so.$(VERSION) \
	644:libtier/connect/llama/tier_llama.h:$(INCLUDEDIR)/tier_llama.h \
	644:$(O)/install/libtier.a:$(LIBDIR)/libtier.a \
	$(if $(wildcard libtier/include/tier.h),644:libtier/include/tier.h:$(INCLUDEDIR)/tier.h) \
	644:libtier/include/tier_object.h:$(INCLUDEDIR)/tier_object.h \
	644:libtier/include/tier_events.h:$(INCLUDEDIR)/tier_events.h \
	644:libtier/include/tier_pages.h:$(INCLUDEDIR)/tier_pages.h \
	644:libtier/include/tier_usage.h:$(INCLUDEDIR)/tier_usage.h \
	644:libtier/include/tier_queue.h:$(INCLUDEDIR)/tier_queue.h \
	644:libtier/include/tier_names.h:$(INCLUDEDIR)/tier_names.h \
	644:libtier/include/tier_old.h:$(INCLUDEDIR)/tier_old.h \
	644:libtier/include/tier_hosts.h:$(INCLUDEDIR)/tier_hosts.h \
	644:libtier/include/tier_owner.h:$(INCLUDEDIR)/tier_owner.h \
	644:libtier/include/tier_taken.h:$(INCLUDEDIR)/tier_taken.h \
	644:libtier/include/tier_kernel.h:$(INCLUDEDIR)/tier_kernel.h \
	644:libtier/include/tier_device.h:$(INCLUDEDIR)/tier_device.h \
	644:libtier/include/tier_view.h:$(INCLUDEDIR)/tier_view.h \
	644:$(O)/install/libtier.pc:$(LIBDIR)/pkgconfig/libtier.pc \
	644:$(O)/install/tierd.service:$(UNITDIR)/tierd.service \
	644:tierd/tierd.sysusers:$(SYSUSERSDIR)/tierd.conf \
	644:tierd/ctl/tierctl.bash:$(BASHCOMPDIR)/tierctl \
	644:LICENSE:$(DOCDIR)/LICENSE \
	$(if $(wildcard tierd/tierd.conf),644:tierd/tierd.conf:$(DOCDIR)/tierd.conf) \
	$(foreach m,$(MAN_PAGES),644:$m:$(MANDIR)/man$(patsubst .%,%,$(suffix $m))/$(notdir $m))
# A page tells of several functions: each is found by its own name, too.
MAN_ALIASES = $(shell awk '/^\.SH/ { on = /NAME/; next } \
	on { on = !/\\-/; sub(/\\-.*/, ""); gsub(",", ""); for (i = 1; i <= NF; i++) \
		if (FILENAME != "docs/man/" $$i ".3") print $$i ".3:" FILENAME }' \
	$(filter %.3,$(MAN_PAGES)))
INSTALL_LINKS = $(if $(MAP_libtier),\
	$(LIBDIR)/libtier.so.$(SOMAJOR):libtier.so.$(VERSION) \
	$(LIBDIR)/libtier.so:libtier.so.$(SOMAJOR)) \
	$(LIBDIR)/libtier_llama.so.$(SOMAJOR):libtier_llama.so.$(VERSION) \
	$(LIBDIR)/libtier_llama.so:libtier_llama.so.$(SOMAJOR) \
	$(foreach a,$(MAN_ALIASES),$(MANDIR)/man3/$(subst docs/man/,,$a))

field = $(word $1,$(subst :, ,$2))

install: all-plain $(O)/install/libtier.a $(O)/install/libtier.pc $(O)/install/tierd.service
	@$(foreach e,$(INSTALL_LIST),install -D -m $(call field,1,$e) $(call field,2,$e) \
		'$(DESTDIR)$(call field,3,$e)' && ) true
	@$(foreach e,$(INSTALL_LINKS),ln -sf $(call field,2,$e) \
		'$(DESTDIR)$(call field,1,$e)' && ) true
	@[ -n '$(DESTDIR)' ] || ldconfig 2>/dev/null || \
		echo 'run ldconfig as root, or programs will not find libtier.so'
	@echo 'installed under $(DESTDIR)$(PREFIX)'

uninstall:
	@rm -f $(foreach e,$(INSTALL_LIST),'$(DESTDIR)$(call field,3,$e)') \
		$(foreach e,$(INSTALL_LINKS),'$(DESTDIR)$(call field,1,$e)')
	@rmdir '$(DESTDIR)$(DOCDIR)' 2>/dev/null || true
	@echo 'removed from $(DESTDIR)$(PREFIX)'

# The archive as one object in which only the public names are left global: an application that
# links it statically may have a crc32c or a list_init of its own.
$(O)/install/libtier.a: $P/libtier.a
	@mkdir -p $(@D)
	@$(LD) -r --whole-archive -o $(@D)/libtier.o $<
	@objcopy --wildcard --keep-global-symbol='tier_*' $(@D)/libtier.o
	@rm -f $@ && $(AR) rcs $@ $(@D)/libtier.o

# These two carry paths, so they are written anew for each PREFIX.
.PHONY: force
force:
$(O)/install/libtier.pc: libtier/libtier.pc.in force
	@mkdir -p $(@D)
	@sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' -e 's|@VERSION@|$(VERSION)|' $< >$@
$(O)/install/tierd.service: tierd/tierd.service force
	@mkdir -p $(@D)
	@sed -e 's|/usr/local/bin|$(BINDIR)|' $< >$@

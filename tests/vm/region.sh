# A region of all of the type-3 device, created as an operator would; sourced. $region is its name.
# SPDX-License-Identifier: Apache-2.0

region() { # BYTES
	cd /sys/bus/cxl/devices
	region=$(cat decoder0.0/create_ram_region)
	echo "$region" >decoder0.0/create_ram_region
	echo 256 >"$region/interleave_granularity"
	echo 1 >"$region/interleave_ways"
	echo ram >decoder2.0/mode
	echo "$1" >decoder2.0/dpa_size
	echo "$1" >"$region/size"
	echo decoder2.0 >"$region/target0"
	echo 1 >"$region/commit"
	echo "$region" >/sys/bus/cxl/drivers/cxl_region/bind
	cd - >/dev/null
}

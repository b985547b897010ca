# A region of all of the type-3 device, created as an operator would; sourced. $region is its name.
# SPDX-License-Identifier: Apache-2.0

region() { # BYTES [DECODER of the device]
	local decoder=${2:-decoder2.0}
	cd /sys/bus/cxl/devices
	region=$(cat decoder0.0/create_ram_region)
	echo "$region" >decoder0.0/create_ram_region
	echo 256 >"$region/interleave_granularity"
	echo 1 >"$region/interleave_ways"
	echo ram >"$decoder/mode"
	echo "$1" >"$decoder/dpa_size"
	echo "$1" >"$region/size"
	echo "$decoder" >"$region/target0"
	echo 1 >"$region/commit"
	echo "$region" >/sys/bus/cxl/drivers/cxl_region/bind
	cd - >/dev/null
}

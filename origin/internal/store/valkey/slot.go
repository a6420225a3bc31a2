package valkey

import "github.com/weirproject/weir/origin/internal/limiter"

// slotCount is how many slots a cluster has.
const slotCount = 16384

// tagAt is where a counter's hash tag stands in its name, "w1:{hhhh}:": a cluster places the name by what is in the braces.
const tagAt, tagEnd = len("w1:{"), len("w1:{hhhh")

// crcTable is of CRC-16/XMODEM, which clusters hash by: polynomial x^16 + x^12 + x^5 + 1.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()

// slotOf is a counter's slot in a cluster.
func slotOf(c *limiter.Counter) uint16 {
	crc := uint16(0)
	for _, b := range c[tagAt:tagEnd] {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^b]
	}
	return crc % slotCount
}

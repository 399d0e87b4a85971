package record

// CombineCRC is the CRC32C of two byte strings one after the other, from the
// CRC32C of each and the second one's length. It costs about a microsecond
// whatever the length, so that a large batch whose CRC was just verified need
// not be summed again for another record around it. And if its bytes change in
// memory after they were verified, the combined sum tells, where a new one
// would have covered it up.
//
// A CRC is a remainder of polynomials over GF(2): appending n bytes multiplies
// the first remainder by x^(8n) before the second is added.
func CombineCRC(first, second uint32, secondBytes int) uint32 {
	return multiply(powerOfX(uint64(secondBytes)*8), first) ^ second
}

// castagnoliReversed is the polynomial with its bits reversed, as the CRC is kept.
const castagnoliReversed = 0x82f63b78

// multiply returns a·b modulo the polynomial; bit 31 is x^0.
func multiply(a, b uint32) uint32 {
	var p uint32
	for bit := uint32(1 << 31); bit != 0; bit >>= 1 {
		if a&bit != 0 {
			p ^= b
		}
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= castagnoliReversed
		}
	}
	return p
}

// squares[k] is x^(2^k) modulo the polynomial.
var squares = func() (s [64]uint32) {
	s[0] = 1 << 30 // x
	for k := 1; k < len(s); k++ {
		s[k] = multiply(s[k-1], s[k-1])
	}
	return s
}()

func powerOfX(n uint64) uint32 {
	p := uint32(1 << 31) // 1
	for k := 0; n > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			p = multiply(squares[k], p)
		}
	}
	return p
}

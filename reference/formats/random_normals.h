// Normal deviates in f32 as numpy draws them, so that the projection of turboquant's inner-product
// codec is that of the library on every machine.
//
// Definition: numpy's default_rng(seed).standard_normal(count, float32) is the ziggurat of
// Marsaglia and Tsang ("The Ziggurat Method for Generating Random Variables", 2000) with 256 layers
// of the density exp(-x^2 / 2) from r = 3.6541528853610088 down, on halves of PCG64's 64-bit words,
// the low half first: bits 0 to 7 of a half are the layer, bit 8 the sign, bits 9 to 31 the place
// in it. Uniform numbers are the upper 24 bits of a half over 2^24. The layers are computed in
// double and rounded to f32; of the tail, which one deviate in 4000 is from, log1p is computed in
// double and rounded once, where numpy takes the platform's of f32: another libm may be one unit
// off there. Source: numpy 2.4.6, numpy/random/src/distributions/distributions.c.

#ifndef REFERENCE_FORMATS_RANDOM_NORMALS_H_
#define REFERENCE_FORMATS_RANDOM_NORMALS_H_

#include <cstdint>
#include <vector>

namespace kvcheck {

std::vector<float> RandomNormals(uint32_t seed, int64_t count);

// What mlx-vlm gives numpy for the projection of a codec of this seed and dimension.
inline uint32_t TurboquantProjectionSeed(int64_t seed, int64_t d) {
  return static_cast<uint32_t>(seed + 1 + 2971 * d + 17);
}

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_RANDOM_NORMALS_H_

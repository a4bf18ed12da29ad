// Golden files for the tests: the content of fixture_python.h5, and a small file for exhaustive
// damage.

#ifndef TESTS_GOLDEN_GOLDEN_SAMPLES_H_
#define TESTS_GOLDEN_GOLDEN_SAMPLES_H_

#include <string>

#include "golden/schema.h"

namespace kvcheck::golden_samples {

// Element i has 17 i + 3 in its low byte, 0x3f in its high one, zeros between; bools are its
// parity.
Tensor Counting(DType dtype, const Shape& shape);

// What tests/golden/make_fixture_python.py writes, without a content hash.
GoldenFile FixtureContent();

// One case with two inputs, an expected output and an observed record: a few kilobytes.
GoldenFile SmallContent();

// The bytes of a safetensors file with this header and these data.
std::string SafetensorsBytes(const std::string& header, const std::string& data);

// A path in the temporary folder, unique to the process and the name.
std::string TemporaryPath(const std::string& name);

std::string ReadBytes(const std::string& path);
void WriteBytes(const std::string& path, const std::string& bytes);

}  // namespace kvcheck::golden_samples

#endif  // TESTS_GOLDEN_GOLDEN_SAMPLES_H_

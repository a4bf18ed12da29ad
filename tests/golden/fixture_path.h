// Where the fixtures are that tests of golden files read.

#ifndef TESTS_GOLDEN_FIXTURE_PATH_H_
#define TESTS_GOLDEN_FIXTURE_PATH_H_

#include <string>

namespace kvcheck::golden_samples {

inline std::string FixturePath(const std::string& name) {
  return std::string(KVCHECK_SOURCE_DIR) + "/tests/golden/" + name;
}

}  // namespace kvcheck::golden_samples

#endif  // TESTS_GOLDEN_FIXTURE_PATH_H_

// What an expression throws, as "CODE | context | message".

#ifndef TESTS_REFERENCE_SPEC_EXPECT_ERROR_H_
#define TESTS_REFERENCE_SPEC_EXPECT_ERROR_H_

#include <string>

#include "reference/spec/error.h"

namespace kvcheck {

// "" when nothing is thrown.
template <typename Action>
std::string ErrorOf(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(Name(error.code())) + " | " + error.context() + " | " + error.message();
  }
  return "";
}

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_SPEC_EXPECT_ERROR_H_

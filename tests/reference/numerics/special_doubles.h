// Names for the doubles that tests poison inputs with.

#ifndef TESTS_REFERENCE_NUMERICS_SPECIAL_DOUBLES_H_
#define TESTS_REFERENCE_NUMERICS_SPECIAL_DOUBLES_H_

#include <limits>

namespace kvcheck {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_NUMERICS_SPECIAL_DOUBLES_H_

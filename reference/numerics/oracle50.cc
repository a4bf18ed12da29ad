// Oracle50, in a source of its own because Boost.Multiprecision takes long to compile.

#include "reference/numerics/oracle-inl.h"

namespace kvcheck {

template class Oracle<50>;

}  // namespace kvcheck

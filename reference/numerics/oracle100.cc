// Oracle100, in a source of its own because Boost.Multiprecision takes long to compile.

#include "reference/numerics/oracle-inl.h"

namespace kvcheck {

template class Oracle<100>;

}  // namespace kvcheck

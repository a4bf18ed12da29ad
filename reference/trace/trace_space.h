// Whether a trace is among the cases that an implementation of caches has (CacheSpace): what is
// drawn for it is, and so must be whatever a drawn case is made into.

#ifndef REFERENCE_TRACE_TRACE_SPACE_H_
#define REFERENCE_TRACE_TRACE_SPACE_H_

#include <functional>
#include <span>
#include <string_view>

#include "reference/spec/cache_space.h"
#include "reference/spec/trace.h"

namespace kvcheck {

// "linear", "linear:w", "ring", "ring:keep", "chunk": kinds of layouts by what has a parameter.
std::span<const std::string_view> LayoutVariants();
// Index of the layout's kind in LayoutVariants().
int LayoutVariantOf(const CacheLayout& layout);

// Rows are counted by the rules of the model: a space of single rows has no trace in which a cache
// would get several. Wrong calls are of the space where the operation is.
bool HasTrace(const CacheSpace& space, const CacheCase& c);

// Which cases a case may be made into: those of some space. Everything where there are no spaces,
// and where none of them has the case itself.
std::function<bool(const CacheCase&)> WithinSpaces(std::span<const CacheSpace> spaces,
                                                   const CacheCase& c);

}  // namespace kvcheck

#endif  // REFERENCE_TRACE_TRACE_SPACE_H_

// A format from its text, as a case has it.

#ifndef TESTS_REFERENCE_FORMATS_FORMAT_NAMED_H_
#define TESTS_REFERENCE_FORMATS_FORMAT_NAMED_H_

#include <string>

#include "reference/spec/kv_format.h"
#include "reference/spec/text.h"

namespace kvcheck {

inline KvFormat FormatNamed(const std::string& text) { return ParseKvFormat(WholeLine(text)); }

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_FORMATS_FORMAT_NAMED_H_

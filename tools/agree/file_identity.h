// Whether two names mean one file, or two files hold the same bytes: what is compared with itself
// proves nothing.

#ifndef TOOLS_AGREE_FILE_IDENTITY_H_
#define TOOLS_AGREE_FILE_IDENTITY_H_

#include <string>

#include "tools/corridor/cancel.h"

namespace kvcheck {

// By path, symbolic or hard link.
bool AreOneFile(const std::string& a, const std::string& b);

// Errors: kUnreadableFile; Cancelled.
bool HaveSameBytes(const std::string& a, const std::string& b, const Cancel& cancel);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_FILE_IDENTITY_H_

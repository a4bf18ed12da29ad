// What is told beside the results, on standard error.

#ifndef TOOLS_KVCHECK_NOTICE_H_
#define TOOLS_KVCHECK_NOTICE_H_

#include <string_view>

namespace kvcheck {

// Past a full disk and a closed descriptor: what cannot be told is no reason to fail. The text is
// escaped as MessageText, and ended.
void PrintNotice(std::string_view text);

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_NOTICE_H_

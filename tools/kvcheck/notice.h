// What is told beside the results, on standard error.

#ifndef TOOLS_KVCHECK_NOTICE_H_
#define TOOLS_KVCHECK_NOTICE_H_

#include <string_view>

namespace kvcheck {

// Past a full disk and a closed descriptor: what cannot be told is no reason to fail. The text is
// escaped as MessageText, and ended.
void PrintNotice(std::string_view text);
// Whether standard output is a pipe that nobody reads any more, as behind `| head`: that is no news
// for whoever closed it.
bool ReaderHasGone();

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_NOTICE_H_

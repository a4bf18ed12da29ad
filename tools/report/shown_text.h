// Texts that others wrote (files, child processes, names on the command line) as a terminal or a
// report may show them: nothing in them moves the cursor, colours, rings, begins a line of its own
// or turns the direction of writing.

#ifndef TOOLS_REPORT_SHOWN_TEXT_H_
#define TOOLS_REPORT_SHOWN_TEXT_H_

#include <string>
#include <string_view>

namespace kvcheck {

// The length in bytes of the UTF-8 character at the beginning of the text and its code point;
// length 0: there is none.
struct Utf8Character {
  int length = 0;
  char32_t code = 0;
};
Utf8Character DecodeUtf8(std::string_view text);

// Whether a character acts instead of being seen: controls (C0, DEL, C1), line and paragraph
// separators, marks and overrides of direction, characters of no width, tags.
bool IsUnseen(char32_t code);

// On one line: unseen characters below 0x80 and bytes that are not UTF-8 as \xNN, others as
// \u{NNNN}.
std::string NameText(std::string_view text);
// A message of any number of lines: all but the first begin with "  | ", so that none passes for
// kvcheck's own.
std::string MessageText(std::string_view text);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_SHOWN_TEXT_H_

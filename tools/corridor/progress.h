// What long work tells whoever waits for it: how far it is, and what happens on the way. Whoever
// asks decides where it is shown.

#ifndef TOOLS_CORRIDOR_PROGRESS_H_
#define TOOLS_CORRIDOR_PROGRESS_H_

#include <string>

namespace kvcheck {

// Shows nothing; of one thread.
class Progress {
 public:
  virtual ~Progress() = default;
  // Whether a new text of the moment would be shown.
  virtual bool IsDue() const { return false; }
  // The text of the moment, in place of the one before it.
  virtual void Show(const std::string&) {}
  virtual void Clear() {}
  // A line that stays.
  virtual void Notice(const std::string&) {}
};

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_PROGRESS_H_

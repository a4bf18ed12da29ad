// What a campaign has come to so far, in a file of its folder: a run that was killed over night is
// begun again with the same command, and goes on. Of the same build, implementation and drawing
// alone; anything else has a file of another name.

#ifndef TOOLS_CAMPAIGN_SAVED_TALLY_H_
#define TOOLS_CAMPAIGN_SAVED_TALLY_H_

#include <optional>
#include <string>

#include "tools/campaign/fuzz_tally.h"
#include "tools/campaign/subject.h"
#include "tools/corridor/progress.h"
#include "tools/process/attended_clock.h"

namespace kvcheck {

class SavedTally {
 public:
  // command: what is drawn, without how much of it. progress: outlives it.
  SavedTally(const std::string& folder, const Subject& subject, const std::string& command,
             Progress* progress);

  // Of no cases where there is none, or none that can be read.
  FuzzTally Read() const;
  // Saves it where something new has failed, and every two seconds.
  void Note(const FuzzTally& tally);
  // Now. A folder that cannot be written is told once, and the campaign goes on.
  void Save(const FuzzTally& tally);
  // The campaign is over.
  void Remove() const;
  const std::string& path() const { return path_; }

 private:
  std::string folder_;
  std::string identity_;
  std::string path_;
  Progress* progress_;
  AttendedClock::time_point saved_;
  size_t saved_failures_ = 0;
  bool told_ = false;
  bool made_folder_ = false;
};

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_SAVED_TALLY_H_

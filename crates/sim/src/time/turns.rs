//! Several clients played by one thread, one whole turn after the other.

use std::time::Duration;

use super::clock::VirtualClock;

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The next one begins so much later than this one ended.
    Again(Duration),
    /// There is no next one.
    Over,
}

/// What a client does in a turn.
pub type Player<'a, E> = Box<dyn FnMut() -> Result<Turn, E> + 'a>;

struct Seat<'a, E> {
    /// When the next turn begins.
    time: Duration,
    /// The run lasts until these are over.
    counts: bool,
    player: Player<'a, E>,
}

impl VirtualClock {
    /// Plays clients, each with a clock of its own, as [`crate::time`] says: a turn is carried out from its beginning to its
    /// end, next is whose clock is behind all others, and of several such the first of the list. Returns when all of
    /// `players` are over, at the time when the last of them was; those `beside` them need not end.
    ///
    /// # Errors
    /// The first of a player.
    pub fn play<E>(
        &self,
        players: Vec<Player<'_, E>>,
        beside: Vec<Player<'_, E>>,
    ) -> Result<(), E> {
        let begin = self.now();
        let seat = |player, counts| Seat {
            time: begin,
            counts,
            player,
        };
        let players = players.into_iter().map(|player| seat(player, true));
        let beside = beside.into_iter().map(|player| seat(player, false));
        let mut seats: Vec<_> = players.chain(beside).collect();
        let mut end = begin;
        while seats.iter().any(|seat| seat.counts) {
            let order = |(place, seat): &(usize, &mut Seat<'_, E>)| (seat.time, *place);
            let Some((place, next)) = seats.iter_mut().enumerate().min_by_key(order) else {
                break;
            };
            self.lock().now = next.time;
            match (next.player)()? {
                Turn::Again(pause) => next.time = self.now().saturating_add(pause),
                Turn::Over => {
                    if next.counts {
                        end = end.max(self.now());
                    }
                    seats.remove(place);
                }
            }
        }
        self.lock().now = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Who is behind is next, the order of the list decides between equals, and time is that of the last who counts.
    #[test]
    fn turns_go_by_time_and_place() {
        let (clock, told) = (VirtualClock::new(), RefCell::new(Vec::new()));
        let player = |name: char, takes: u64, turns: usize| -> Player<'_, ()> {
            let (clock, told, mut left) = (&clock, &told, turns);
            Box::new(move || {
                told.borrow_mut().push((clock.now().as_secs(), name));
                clock.sleep(Duration::from_secs(takes));
                left -= 1;
                Ok(match left {
                    0 => Turn::Over,
                    _ => Turn::Again(Duration::from_secs(1)),
                })
            })
        };
        let players = vec![player('a', 3, 3), player('b', 1, 2)];
        assert_eq!(clock.play(players, vec![player('c', 9, 9)]), Ok(()));
        let expected = [(0, 'a'), (0, 'b'), (0, 'c'), (2, 'b'), (4, 'a'), (8, 'a')];
        assert_eq!(*told.borrow(), expected);
        assert_eq!(clock.now(), Duration::from_secs(11));
    }
}
